package media

import (
	"errors"
	"testing"
	"time"
)

func TestFileLimit_EndsAChildThatMakesTooManyFiles(t *testing.T) {
	t.Parallel()
	const makeFiles = "mkdir sub\ni=0\nwhile [ $i -lt 30 ]; do : > sub/$i; i=$((i+1)); done\n"
	for name, c := range map[string]struct {
		then string
		most int
		want error
	}{
		"it ends": {"", 20, ErrMismatch}, "it goes on": {"sleep 60", 20, ErrMismatch}, "as many as allowed": {"", 32, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			tools := Tools{FFmpeg: script(t, makeFiles+c.then), maxFiles: c.most}
			if _, err := tools.run(t.Context(), command{tool: "ffmpeg", dir: t.TempDir()}); !errors.Is(err, c.want) {
				t.Errorf("error %v; want %v", err, c.want)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
