"""The application: notes of users, kept by an agent."""
