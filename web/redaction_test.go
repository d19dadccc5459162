package web_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
)

func TestSourceSecrets_AreInNoResponseToReaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, source := range []string{
		"s3://bucket/clip.mp4?X-Amz-Signature=c0ffee123", "https://me:c0ffee123@h/a.mp4", "gs+x://h/a#c0ffee123",
		"bucket/clip.mp4?c0ffee123", "https://me:c0ffee123@h/%zz", "key:c0ffee123@bucket",
	} {
		b.exec("insert into tasks (source) values ($1)", source)
	}
	tasks, err := b.List(t.Context(), store.ListQuery{Filter: store.Filter{}})
	if err != nil || len(tasks) != 6 {
		t.Fatal(tasks, err)
	}
	paths := []string{api + "/tasks", api + "/tasks?source=h", api + "/events", api + "/workers", "/metrics"}
	for _, task := range tasks {
		paths = append(paths, api+"/tasks/"+task.ID.String())
		b.failTask(task.ID)
	}
	readers := []string{readText, b.key(access.Submit.String())}
	for _, as := range readers {
		for _, path := range paths {
			b.wantNoSecret(path, string(b.do(call{method: "GET", path: path, as: as}).wantStatus(http.StatusOK, nil).body))
		}
		for _, path := range []string{api + "/events/stream?after=0", api + "/tasks/" + tasks[0].ID.String() + "/events"} {
			b.wantNoSecret(path, b.readStream(path, as))
		}
	}
	// An older version or another program may have written the source into these columns.
	for _, task := range tasks {
		b.exec(`update attempts set error = 'open ' || $2, result = jsonb_build_object('from', $2::text)
			where task_id = $1`, task.ID, task.Source)
		for _, as := range readers {
			path := api + "/tasks/" + task.ID.String()
			b.wantNoSecret(path, string(b.do(call{method: "GET", path: path, as: as}).wantStatus(http.StatusOK, nil).body))
		}
	}
	var whole page
	b.get(api+"/tasks").wantStatus(http.StatusOK, &whole)
	if !strings.Contains(whole.Tasks[0].Source, "c0ffee") {
		t.Errorf("the admin is not shown the source: %+v", whole.Tasks[0])
	}
	b.post(api+"/tasks", map[string]any{"source": "https://me:c0ffee123@h/a.mp4?c0ffee123#c0ffee123"}).
		wantStatus(http.StatusCreated, nil)
	audit := b.get(api+"/audit").wantStatus(http.StatusOK, nil)
	if text := string(audit.body); strings.Contains(text, "c0ffee") || !strings.Contains(text, "https://h/a.mp4") {
		t.Errorf("the audit has %s", text)
	}
}

// wantNoSecret fails the test if text has the secret.
func (b *testServer) wantNoSecret(path, text string) {
	b.t.Helper()
	if i := strings.Index(text, "c0ffee"); i >= 0 {
		b.t.Errorf("%s shows the secret: %s", path, text[max(i-100, 0):i+6])
	}
}

// readStream returns what a stream sends in its first second.
func (b *testServer) readStream(path, as string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+as)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	var text strings.Builder
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
	}
	return text.String()
}
