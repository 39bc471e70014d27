"""One module for each third-party product: web frameworks and agent frameworks."""
