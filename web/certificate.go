package web

import (
	"crypto/tls"
	"os"
	"sync"
	"time"
)

// certificateCheckInterval is how often the server checks whether the files of its certificate changed.
const certificateCheckInterval = 10 * time.Second

// certificate reads a certificate again when its files change.
type certificate struct {
	certFile, keyFile string
	interval          time.Duration
	onError           func(error)

	mu        sync.Mutex
	current   *tls.Certificate
	modified  time.Time // of the files of current
	checkedAt time.Time
	lastError string // reported already
}

// get returns the current certificate. If the files cannot be read, for example because they are being replaced, it
// returns the previous one and reports the error once.
func (c *certificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && time.Since(c.checkedAt) < c.interval {
		return c.current, nil
	}
	c.checkedAt = time.Now()
	err := c.reload()
	switch {
	case err == nil:
		c.lastError = ""
	case c.current == nil:
		return nil, err
	case c.lastError != err.Error():
		c.lastError = err.Error()
		c.onError(err)
	}
	return c.current, nil
}

func (c *certificate) reload() error {
	var newest time.Time
	for _, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	if c.current != nil && newest.Equal(c.modified) {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.current, c.modified = &pair, newest
	return nil
}
