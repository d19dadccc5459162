package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/browsertest"
)

// get returns the answer of a daemon to a request, with a secret unless that is empty.
func get(t *testing.T, address, secret string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", address, resp.Status, err, text)
	}
	return string(text)
}

// The page is on another site than the daemon, as those that links for viewers are for.
func TestEncryptedVideo_PlaysInABrowserAndItsKeyIsInNoTableAndNoLog(t *testing.T) {
	t.Parallel()
	browser := browsertest.Require(t)
	s := newDashboardDaemon(t)
	const length = 8 * time.Second
	task := submit(t, s.pool, s.makeVideo("film.mp4", "testsrc2=s=320x240:r=25", length), `{"encryption": "aes-128"}`)
	awaitCount(t, s.pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	origin := "http://" + s.address
	var link struct{ HLS, DASH string }
	if err := json.Unmarshal([]byte(get(t, origin+"/api/v1/tasks/"+task+"/playback", s.secret("read"))), &link); err != nil {
		t.Fatal(err)
	}
	if link.DASH != "" {
		t.Errorf("it has a DASH manifest: %s", link.DASH)
	}
	at := path.Dir(strings.TrimPrefix(link.HLS, origin))
	film := browsertest.Video{Address: origin + at, Length: length}
	browser.Play(t, map[string]browsertest.Video{"film": film}, browsertest.PlayOptions{})

	media := regexp.MustCompile(`(?m)^gen-.*m3u8$`).FindString(get(t, link.HLS, ""))
	name := regexp.MustCompile(`URI="\.\./\.\./(key/[0-9a-f]{16})",IV=0x[0-9a-f]{32}\n`).FindStringSubmatch(get(t, origin+at+"/"+media, ""))
	if name == nil {
		t.Fatalf("%s names no key", media)
	}
	key := get(t, origin+at+"/"+name[1], "")
	if dashboard := get(t, origin+"/api/v1/published/"+task+"/"+name[1], s.secret("read")); len(key) != 16 || dashboard != key {
		t.Fatalf("keys of %d and %d bytes", len(key), len(dashboard))
	}
	forms := []string{
		hex.EncodeToString([]byte(key)), base64.StdEncoding.EncodeToString([]byte(key)), base64.RawURLEncoding.EncodeToString([]byte(key)),
		s.secret("encryption"),
	}
	rows, err := s.pool.Query(t.Context(), `select tablename from pg_tables where schemaname = current_schema()`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	tables := 0
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			t.Fatal(err)
		}
		tables++
		var text string
		if err := s.pool.QueryRow(t.Context(), `select coalesce(string_agg(r::text, ' '), '') from "`+table+`" r`).Scan(&text); err != nil {
			t.Fatal(err)
		}
		for _, form := range forms {
			if strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
				t.Errorf("the table %s has the key", table)
			}
		}
	}
	if err := rows.Err(); err != nil || tables < 10 {
		t.Errorf("%d tables, %v", tables, err)
	}
	s.daemon.stop()
	logs, err := json.Marshal(s.daemon.lines)
	for _, form := range forms {
		if err != nil || strings.Contains(string(logs), form) || !strings.Contains(string(logs), task) {
			t.Errorf("the log has the key: %v\n%s", err, logs)
		}
	}
}
