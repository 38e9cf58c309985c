"""Files of members: a tree of entries, their bytes by digest, and who may read them because of a message."""
