"""What columnar tables are made of: versioned memory blocks, 16-byte ids, the index from id to row."""
