"""A folder to put on the path of programs that import `pmix`."""
