package remote

// Waiting is how many requests of workers wait.
func (c *Coordinator) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// LargeRequests is how many large requests of a principal are being read.
func (c *Coordinator) LargeRequests(principal string) int { return len(c.limitsOf(principal).large) }
