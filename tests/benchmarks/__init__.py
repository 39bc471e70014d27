"""Speed of the library, as ratios to its peers and to a bare server measured in the same run; see README.md."""
