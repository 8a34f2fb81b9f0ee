"""What is between kstore and the system: files, mapped files, windows on files, buffers, events, a mutex."""
