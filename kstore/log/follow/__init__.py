"""Reading a log on as it grows: positions, sources of views, followers, waiting."""
