package blockcache

// FileSize returns the size of the file of the blocks.
func (c *Cache) FileSize() (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return 0, nil
	}
	info, err := c.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
