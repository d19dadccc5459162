package system

import "io"

// Serve answers calls as a child with a system does.
func Serve(s System, url string, to io.ReadWriteCloser) error {
	return serve([]System{s}, config{System: s.Name(), URL: url}, to)
}
