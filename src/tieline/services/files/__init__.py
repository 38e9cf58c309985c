"""Files of members: a tree of files and folders, their bytes (stored under their hash), and the rights to read them."""
