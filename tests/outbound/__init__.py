"""Requests to URLs that peers name: the rules for URLs, and the requests themselves."""
