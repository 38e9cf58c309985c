"""Files of members: a tree of files and folders, their bytes (stored under their hash), and the grants to read them."""
