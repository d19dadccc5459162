package main

import (
	"fmt"
	"os/exec"
	"runtime"

	"github.com/cuelight/cuelight/internal/usererr"
)

// checkTools checks that ffmpeg and ffprobe are installed.
func (o *workOptions) checkTools() error {
	for _, program := range []string{o.ffmpeg, o.ffprobe} {
		if _, err := exec.LookPath(program); err != nil {
			return &usererr.Error{
				Kind: usererr.Usage,
				Text: fmt.Sprintf("%s is not installed or cannot be run", usererr.Printable(program)),
				Hint: installHint("ffmpeg"),
			}
		}
	}
	return nil
}

// installHint returns the command that installs a package on this system.
func installHint(name string) string {
	has := func(program string) bool { _, err := exec.LookPath(program); return err == nil }
	switch {
	case runtime.GOOS == "darwin":
		return "install it: brew install " + name
	case has("apt-get"):
		return "install it: apt-get install --no-install-recommends " + name
	case has("dnf"):
		return "install it: dnf install " + name
	case has("apk"):
		return "install it: apk add " + name
	case has("pacman"):
		return "install it: pacman -S " + name
	}
	return "install " + name + " with your system's packages"
}
