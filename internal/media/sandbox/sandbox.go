package sandbox

import (
	"encoding/json"
	"fmt"
)

// Policy says what a program may do. Paths are absolute.
type Policy struct {
	// ReadOnly are files and directories that may be read, and programs in them
	// executed; ReadWrite directories in which files may be made. The directories
	// of the system's programs and libraries are added to ReadOnly.
	ReadOnly, ReadWrite paths `json:",omitempty"`

	// User is the number of the user and of the group that the program runs as.
	// Zero leaves those of this process.
	User int `json:",omitempty"`
	// KeepCapabilities leaves a program without a User of its own the rights of
	// this process on files.
	KeepCapabilities bool `json:",omitempty"`

	// Nice and OOMScore are the program's; 0 leaves those of this process.
	Nice, OOMScore int `json:",omitempty"`

	// FileSize is the largest file it may write, Memory its largest address
	// space, in bytes; CPU is its processor time in seconds, Tasks how many
	// processes and threads its user may have. Zero is no limit.
	FileSize, Memory, CPU, Tasks uint64 `json:",omitempty"`

	// Require makes the start fail where a layer is not to be had on this host.
	Require bool `json:",omitempty"`

	// Parent is the number of the process that the program must not outlive; Wrap
	// sets it.
	Parent int `json:",omitempty"`
}

// paths need not be UTF-8, as JSON's strings must.
type paths []string

// MarshalJSON writes them as bytes.
func (p paths) MarshalJSON() ([]byte, error) {
	list := make([][]byte, len(p))
	for i, path := range p {
		list[i] = []byte(path)
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads them as bytes.
func (p *paths) UnmarshalJSON(text []byte) error {
	var list [][]byte
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, path := range list {
		*p = append(*p, string(path))
	}
	return nil
}

// exitCode is that of a process that could not be confined, or whose program
// could not be started; prefix begins what it says on standard error.
const (
	exitCode = 125
	prefix   = "cuelight-sandbox: "
)

// marker is the first argument of a process that is to confine itself.
const marker = "cuelight-sandbox"

// Layer is one part of the confinement, and whether this host offers it.
type Layer struct {
	Name    string
	Offered bool
	// Detail says how much is offered, or why nothing is.
	Detail string
}

// Failure is what a wrapped process said if it could not be confined or started;
// empty if it was its program that ended.
func Failure(code int, stderr string) string {
	if code != exitCode || len(stderr) < len(prefix) || stderr[:len(prefix)] != prefix {
		return ""
	}
	return stderr[len(prefix):]
}

// missing are the names of layers that are not offered.
func missing(layers []Layer) error {
	for _, l := range layers {
		if !l.Offered {
			return fmt.Errorf("this host does not offer %s: %s", l.Name, l.Detail)
		}
	}
	return nil
}

// Check returns an error where a layer that a required confinement needs is not
// to be had on this host.
func Check() error { return missing(Layers()) }
