package web

import (
	"context"
	"crypto/tls"
	"os"
	"time"
)

// lookAgain is how often the files of a certificate are looked at.
const lookAgain = 10 * time.Second

// certificate is read again when its files change.
type certificate struct {
	certFile, keyFile string
	every             time.Duration
	trouble           func(error)

	memo memo[stamped]
	told string // of what went wrong, until it goes right
}

// stamped is a certificate and when its files were written.
type stamped struct {
	certificate *tls.Certificate
	modified    time.Time
}

// get is the certificate as it is now. One that cannot be read, because it is just
// being replaced, or for good, is served as it was; that is told once.
func (c *certificate) get(ctx context.Context) (*tls.Certificate, error) {
	now, err := c.memo.get(ctx, c.every, func(context.Context) (stamped, error) {
		old := c.memo.value
		now, err := c.read(old)
		switch {
		case err == nil:
			c.told = ""
		case old.certificate == nil:
			return stamped{}, err
		default:
			if c.told != err.Error() {
				c.told = err.Error()
				c.trouble(err)
			}
			return old, nil
		}
		return now, nil
	})
	return now.certificate, err
}

// read reads the files, unless they are those of old.
func (c *certificate) read(old stamped) (stamped, error) {
	modified, err := c.modified()
	if err != nil || old.certificate != nil && modified.Equal(old.modified) {
		return old, err
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	return stamped{&pair, modified}, err
}

// modified is when the newer of the two was written.
func (c *certificate) modified() (time.Time, error) {
	var newest time.Time
	for _, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return newest, err
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest, nil
}
