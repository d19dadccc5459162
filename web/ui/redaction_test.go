package ui_test

import (
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

func TestPages_HideSecretsOfSources(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil) // with all permissions
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := s.pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, source := range []string{
		"s3://bucket/clip.mp4?X-Amz-Signature=c0ffee123", "https://me:c0ffee123@h/a.mp4", "gs+x://h/a#c0ffee123",
		"bucket/clip.mp4?c0ffee123", "https://me:c0ffee123@h/%zz", "key:c0ffee123@bucket",
	} {
		r, err := s.st.Submit(t.Context(), store.Submission{Source: source})
		if err != nil {
			t.Fatal(err)
		}
		text := "open " + source // as an older version stored it
		if !strings.Contains(source, "://") {
			text = redact.Text(text, source) // as this version stores it
		}
		exec(`update tasks set ingest_status = 'dead' where id = $1`, r.ID)
		exec(`insert into attempts (task_id, stage, attempt, outcome, token, worker_id, started_at, finished_at,
				error_class, error, result)
			values ($1, 'ingest', 1, 'failed', gen_random_uuid(), gen_random_uuid(), now(), now(),
				'error', $2, jsonb_build_object('from', $3::text))`, r.ID, text, source)
		video := "/videos/" + r.ID.String()
		for _, path := range []string{
			"/", "/?q=clip", "/dead", "/dead?stage=ingest", video, video + "/retry", video + "/override",
		} {
			if _, text, _ := s.get(path); strings.Contains(text, "c0ffee") {
				at := strings.Index(text, "c0ffee")
				t.Errorf("%s shows the secret of %s: %s", path, source, text[max(at-200, 0):at+20])
			}
		}
	}
}
