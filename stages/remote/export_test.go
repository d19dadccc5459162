package remote

// Waiting returns how many workers have a waiting request.
func Waiting(c *Coordinator) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}
