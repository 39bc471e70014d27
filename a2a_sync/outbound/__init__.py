"""HTTP requests to URLs that peers name: judged by a guard, bounded, and made without redirects."""
