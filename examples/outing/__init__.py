"""Three agents in three processes that plan an outing together: see README.md."""
