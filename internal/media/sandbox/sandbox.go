package sandbox

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Policy says what a program may do. Paths are absolute.
type Policy struct {
	// ReadOnly are files and directories that the program may read, and execute programs from.
	// The directories of the system's programs and libraries are added. ReadWrite are directories
	// in which it may also create files.
	ReadOnly, ReadWrite paths `json:",omitempty"`

	// Devices are files of devices that the program may open, write to and control. With any, it may
	// also name its threads, and list their directories below /dev.
	Devices paths `json:",omitempty"`

	// User is the id of the user and of the group that the program runs as. Default: those of
	// this process.
	User int `json:",omitempty"`
	// Groups are further groups of the program if it has a User.
	Groups []int `json:",omitempty"`
	// KeepCapabilities leaves the program the capabilities of this process, with which it can
	// open the same files. It is for a policy without a User.
	KeepCapabilities bool `json:",omitempty"`

	// Nice and OOMScore are the program's. Default 0: those of this process.
	Nice, OOMScore int `json:",omitempty"`

	// FileSize is the largest file that the program may write, Memory its largest address space,
	// both in bytes. CPU is its processor time in seconds. Tasks is how many processes and threads
	// its user may have, OpenFiles how many files it may have open. Default 0: no limit.
	FileSize, Memory, CPU, Tasks, OpenFiles uint64 `json:",omitempty"`

	// Require makes the start fail if the host does not offer a layer.
	Require bool `json:",omitempty"`

	// Control is the descriptor over which the child sends the listener of its socket calls. Sockets
	// sets it.
	Control int `json:",omitempty"`

	// Parent is the id of the process that the program must not outlive. Wrap sets it.
	Parent int `json:",omitempty"`
}

// paths need not be valid UTF-8, unlike strings in JSON.
type paths []string

// MarshalJSON encodes the paths as bytes.
func (p paths) MarshalJSON() ([]byte, error) {
	list := make([][]byte, len(p))
	for i, path := range p {
		list[i] = []byte(path)
	}
	return json.Marshal(list)
}

// UnmarshalJSON decodes paths that MarshalJSON encoded.
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

const (
	// marker is the first argument of a process that is to confine itself.
	marker = "cuelight-sandbox"
	// failureCode is the exit code of a process that could not be confined or could not start its
	// program. failurePrefix begins the error that it prints.
	failureCode   = 125
	failurePrefix = "cuelight-sandbox: "
)

// Failure returns the error that a wrapped process printed if it could not be confined or started,
// and "" if its program ran.
func Failure(code int, stderr string) string {
	text, hasPrefix := strings.CutPrefix(stderr, failurePrefix)
	if code != failureCode || !hasPrefix {
		return ""
	}
	return text
}

// Layer is one part of the confinement, and whether this host offers it.
type Layer struct {
	Name    string
	Offered bool
	// Detail says which part of it is offered, or why none is.
	Detail string
}

// Check returns an error if this host does not offer all layers.
func Check() error {
	for _, l := range Layers() {
		if !l.Offered {
			return fmt.Errorf("this host does not offer %s: %s", l.Name, l.Detail)
		}
	}
	return nil
}
