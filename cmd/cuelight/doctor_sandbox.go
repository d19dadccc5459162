package main

import (
	"context"
	"fmt"
	"os"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/media/sandbox"
	"github.com/cuelight/cuelight/internal/usererr"
)

// checkSandbox checks how far this host can confine ffmpeg, which reads files from
// strangers, and runs ffmpeg in the sandbox.
func (d *doctor) checkSandbox(ctx context.Context) {
	const check = "sandbox"
	for _, l := range sandbox.Layers() {
		if l.Offered {
			d.ok(check, "%s: %s", l.Name, l.Detail)
			continue
		}
		d.warn(check, fmt.Sprintf("%s: %s", l.Name, l.Detail), sandboxFix(l.Name))
	}
	tools := media.Tools{FFmpeg: d.o.ffmpeg, FFprobe: d.o.ffprobe, Memory: int64(d.o.maxMemory)}
	if err := d.o.confine(&tools); err != nil {
		d.wrong(check, err.Error(), "correct the flag or its environment variable")
		return
	}
	if tools.Sandbox == media.SandboxOff {
		d.warn(check,
			"ffmpeg is not confined (--sandbox off): a malicious file could do everything that cuelight may do",
			"use --media-readable to allow what ffmpeg needs")
		return
	}
	if _, err := tools.Version(ctx); err != nil {
		d.wrong(check, "a confined ffmpeg does not start: "+usererr.FirstLine(err.Error()),
			"allow what it needs with --media-readable, or use --sandbox off")
		return
	}
	who := fmt.Sprintf("user %d", os.Geteuid())
	if sandbox.CanChangeUser(tools.User) {
		who = fmt.Sprintf("user %d (--media-user)", tools.User)
	}
	memory := "any amount of memory"
	if most := tools.MemoryLimit(); most > 0 {
		memory = fmt.Sprintf("at most %s of memory (--max-memory)", console.Size(most))
	}
	d.ok(check, "ffmpeg runs as %s with %s", who, memory)
}

func sandboxFix(layer string) string {
	switch layer {
	case "Landlock":
		return "use Linux 5.13 or newer with Landlock on; in a container, a seccomp profile that allows it"
	case "account":
		return "run cuelight as a user of its own, or give its container the capabilities back"
	}
	return "use Linux on x86-64 or ARM64"
}
