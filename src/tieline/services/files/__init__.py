"""Files of members: a tree of entries, their bytes by digest, and read access through messages."""
