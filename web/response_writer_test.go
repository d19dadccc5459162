package web_test

import (
	"bytes"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/web"
)

// recordingWriter records its deadlines and the most bytes written under one of them.
type recordingWriter struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
	most, now int
}

func (w *recordingWriter) SetWriteDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t)
	w.now = 0
	return nil
}

func (w *recordingWriter) Write(p []byte) (int, error) {
	w.now += len(p)
	w.most = max(w.most, w.now)
	return w.ResponseRecorder.Write(p)
}

func TestResponseWriter_SetsADeadlinePerChunk(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	for name, write := range map[string]func(w io.Writer) error{
		"at once": func(w io.Writer) error { _, err := w.Write([]byte(content)); return err },
		"from a file": func(w io.Writer) error {
			_, err := io.CopyN(w, strings.NewReader(content), int64(len(content)))
			return err
		},
		"from a stream": func(w io.Writer) error {
			_, err := io.Copy(w, struct{ io.Reader }{strings.NewReader(content)})
			return err
		},
	} {
		under := &recordingWriter{ResponseRecorder: httptest.NewRecorder()}
		w := web.NewResponseWriter(under)
		if err := write(w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(under.Body.Bytes(), []byte(content)) {
			t.Errorf("%s: %d bytes came", name, under.Body.Len())
		}
		if !under.deadlines[0].IsZero() || len(under.deadlines) < 5 || under.most > 256<<10 {
			t.Errorf("%s: %d deadlines, at most %d bytes under one", name, len(under.deadlines), under.most)
		}
		for _, at := range under.deadlines[1:] {
			if left := time.Until(at); left < 10*time.Second || left > 40*time.Second {
				t.Errorf("%s: a part has %v", name, left)
			}
		}
	}
}
