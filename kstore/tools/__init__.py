"""What the command line does, as functions: dump, records, find, stat. They print nothing but what they yield."""
