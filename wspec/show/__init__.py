"""What people look at: tables of plans and binaries, pictures of graphs, short forms of IR and their differences."""
