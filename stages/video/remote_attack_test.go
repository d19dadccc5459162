package video

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// attacker is a worker with a valid key and a claim of each stage.
type attacker struct {
	*remoteSite
	task      store.ID
	transcode store.ID // tokens
	metadata  store.ID
	worker    store.ID
	source    string // name of the input
	segment   string // name of an output
}

func newAttacker(t *testing.T) *attacker {
	t.Helper()
	a := newAttackerOn(newRemoteSite(t))
	a.segment = firstSegment(t)
	return a
}

// newAttackerOn returns an attacker without the name of an output.
func newAttackerOn(s *remoteSite) *attacker {
	s.t.Helper()
	a := &attacker{remoteSite: s}
	a.workLocally(RemoteStageNames()...)
	a.task = a.submit(clips.picture)
	a.register()
	a.claim()
	in, err := NewRemoteFiles(a.Config, a.Result).ingest(context.Background(), a.task)
	if err != nil {
		a.t.Fatal(err)
	}
	a.source = filepath.ToSlash(in.File)
	return a
}

// firstSegment is the name of the first segment of a rendition of the picture.
func firstSegment(t *testing.T) string {
	t.Helper()
	h, m := readyHarness(t)
	dir := filepath.Join(h.TaskDir(h.job.Task), m.tr.Dir)
	all, err := filepath.Glob(filepath.Join(dir, "*", "*.m4s"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no segments: %v", err)
	}
	name, err := filepath.Rel(dir, all[0])
	if err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(name)
}

func (a *attacker) register() {
	a.t.Helper()
	var out struct {
		Worker store.ID `json:"worker_id"`
	}
	a.post("key-evil", "/register", `{"protocol":1,"pipeline":"video","host":"evil","pid":1}`, &out)
	a.worker = out.Worker
}

// report reports an outcome of the attacker's worker.
func (a *attacker) report(key string, token store.ID, outcome string) reply {
	a.t.Helper()
	body := fmt.Sprintf(`{"worker_id":%q,"reports":[{"token":%q,%s}]}`, a.worker, token, outcome)
	return a.send("POST", key, "/exchange", strings.NewReader(body), nil)
}

// claim claims both stages of the task.
func (a *attacker) claim() {
	a.t.Helper()
	a.transcode, a.metadata = store.ID{}, store.ID{}
	waittest.Until(a.t, "the stages are claimed", func() bool {
		var out struct {
			Claims []struct {
				Token store.ID `json:"token"`
				Stage string   `json:"stage"`
			}
		}
		free := map[bool]string{true: "1", false: "0"}
		a.post("key-evil", "/exchange", fmt.Sprintf(`{"worker_id":%q,"free_slots":{"transcode":%s,"metadata":%s}}`,
			a.worker, free[a.transcode.IsZero()], free[a.metadata.IsZero()]), &out)
		for _, c := range out.Claims {
			switch c.Stage {
			case transcodeStage:
				a.transcode = c.Token
			case metadataStage:
				a.metadata = c.Token
			}
		}
		return !a.transcode.IsZero() && !a.metadata.IsZero()
	})
}

// put sends a piece of an output of transcode.
func (a *attacker) put(name string, body io.Reader, contentRange, sum string) reply {
	a.t.Helper()
	header := http.Header{"Content-Range": {contentRange}, "Content-Sha256": {sum}}
	return a.send("PUT", "key-evil", "/claims/"+a.transcode.String()+"/output/"+name, body, header)
}

func (a *attacker) wantKind(act string, r reply, kinds ...string) {
	a.t.Helper()
	for _, kind := range kinds {
		if r.kind == kind && (kind != "" || r.status < 300) {
			return
		}
	}
	a.t.Errorf("%s: %d %s, want %q", act, r.status, r.body, kinds)
}

// wantUnharmed requires that the attacks changed nothing, and lets an honest worker complete.
func (a *attacker) wantUnharmed(before string) {
	a.t.Helper()
	if after := a.snapshot(); after != before {
		a.t.Errorf("files outside of the receiving directory changed")
	}
	a.mu.Lock()
	for _, err := range a.failures {
		a.t.Errorf("it counts as a failure of the database: %v", err)
	}
	a.mu.Unlock()
	for _, token := range []store.ID{a.transcode, a.metadata} {
		a.report("key-evil", token, `"outcome":"released"`)
	}
	a.workRemotely(a.url, "key-honest")
	tr, p := a.waitPublished(a.task)
	wantPlayable(a.t, filepath.Join(a.PublishDir, p.Master), append(tr.Output.Video, tr.Output.Audio...))
}

func TestRemoteFiles_RefuseNamesThatTheClaimDoesNotDeliver(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	other, sound := a.addOther()
	before := a.snapshot()
	folder := strings.TrimSuffix(a.segment, filepath.Base(a.segment))
	names := []string{
		"..", "../x.m4s", "%2e%2e/x.m4s", "..%2fx.m4s", "..%2f..%2f..%2f..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "/etc/passwd",
		folder + "..%2f" + a.segment, folder + "../" + a.segment, "./" + a.segment, folder + "/" + filepath.Base(a.segment),
		strings.ReplaceAll(a.segment, "/", "%5c"), "..%5cx.m4s", "C:%5cx.m4s", "CON", "nul", folder + "aux.m4s", "%00", a.segment + "%00",
		"%0a", a.segment + "%0d%0aX: y", "%1b[31m", "%ff%fe", "%e2%80%ae", strings.Repeat("x", 10_000), strings.Repeat("x/", 5_000),
		"", ".", folder, "master.m3u8", "manifest.mpd", "metadata.json", "poster.jpg", ".cuelight-id", folder + "index.m3u8",
		strings.ToUpper(a.segment), a.segment + " ", a.segment + ".", a.segment + "/x", "source/source.mp4", a.source,
	}
	for n := 1000; n < 1020; n++ { // of a million segments that three seconds do not have
		names = append(names, fmt.Sprintf("%sseg-%05d.m4s", folder, n), fmt.Sprintf("%sseg-%d.m4s", folder, n*1000))
	}
	for _, name := range names {
		r := a.put(name, strings.NewReader("x"), "bytes 0-0/1", "")
		if r.status < 300 || r.status >= 500 || r.status >= 400 && r.kind != "invalid" && r.kind != "not-found" {
			t.Errorf("%.80q: %d %.200s", name, r.status, r.body)
		}
		r = a.send("GET", "key-evil", "/claims/"+a.transcode.String()+"/input/"+name, nil, nil)
		if r.status < 300 && name != a.source || r.status >= 500 {
			t.Errorf("read %.80q: %d %.200s", name, r.status, r.body)
		}
	}
	for _, name := range []string{sound, "../" + other.String() + "/" + sound, "..%2f" + other.String() + "%2f" + sound} {
		if r := a.send("GET", "key-evil", "/claims/"+a.transcode.String()+"/input/"+name, nil, nil); r.status < 300 {
			t.Errorf("the source of another task is served as %s", name)
		}
	}
	a.wantUnharmed(before)
}

// addOther adds a cancelled task, which has the files of its ingest, and returns the name of its
// source.
func (a *attacker) addOther() (task store.ID, source string) {
	a.t.Helper()
	task = a.submit(clips.sound)
	waittest.Until(a.t, "the other task has its source", func() bool {
		in, err := NewRemoteFiles(a.Config, a.Result).ingest(context.Background(), task)
		source = filepath.ToSlash(in.File)
		return err == nil
	})
	if err := a.Cancel(context.Background(), task); err != nil {
		a.t.Fatal(err)
	}
	return task, source
}

func TestRemoteFiles_BelieveNoDeclaredLength(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	before := a.snapshot()
	const gigabyte = 1 << 30
	refusedOrCut := []string{"invalid-request", "connection ended"}
	ten := func() io.Reader { return strings.NewReader("0123456789") }
	for _, c := range []struct {
		act, contentRange string
		body              io.Reader
		kinds             []string
	}{
		{"a gigabyte declared in a piece", fmt.Sprintf("bytes 0-%d/%d", gigabyte-1, gigabyte), ten(), []string{"invalid-request"}},
		{"a gigabyte declared in all", fmt.Sprintf("bytes 0-9/%d", gigabyte), ten(), []string{"invalid"}},
		{"more than can be counted", "bytes 0-9/9223372036854775807", ten(), []string{"invalid"}},
		{"more than a number", "bytes 0-9/99999999999999999999", ten(), []string{"invalid-request"}},
		{"ten declared and more sent", "bytes 0-9/10", bytes.NewReader(make([]byte, 1<<20)), refusedOrCut},
		{"no length", "bytes 0-9/10", io.MultiReader(ten()), []string{"invalid-request"}},
		{"ten declared and a gigabyte sent", "bytes 0-9/10", io.LimitReader(zeros{}, gigabyte), refusedOrCut},
		{
			"a piece above the limit", fmt.Sprintf("bytes 0-%d/%d", 9<<20-1, 9<<20), bytes.NewReader(make([]byte, 9<<20)),
			[]string{"too-large", "connection ended"},
		},
		{"a total below the piece", "bytes 0-9/5", ten(), []string{"invalid-request"}},
		{"a total of nothing", "bytes 0-9/0", ten(), []string{"invalid-request"}},
		{"a negative total", "bytes 0-9/-7", ten(), []string{"invalid-request"}},
		{"a negative beginning", "bytes -5-4/10", ten(), []string{"invalid-request"}},
		{"an end before the beginning", "bytes 9-0/10", ten(), []string{"invalid-request"}},
		{"beyond the end", "bytes 90-99/100", ten(), []string{"upload-offset"}},
		{"no range", "", ten(), []string{"invalid-request"}},
		{"another unit", "seconds 0-9/10", ten(), []string{"invalid-request"}},
		{"an unknown total", "bytes 0-9/*", ten(), []string{"invalid-request"}},
	} {
		a.wantKind(c.act, a.put(a.segment, c.body, c.contentRange, ""), c.kinds...)
	}
	r := a.send("HEAD", "key-evil", "/claims/"+a.transcode.String()+"/output/"+a.segment, nil, nil)
	if got := r.header.Get("Upload-Offset"); got != "0" {
		t.Errorf("%s bytes arrived", got)
	}
	a.wantKind("a wrong hash", a.put(a.segment, ten(), "bytes 0-9/10", strings.Repeat("0", 64)), "invalid")
	a.wantKind("a hash that is none", a.put(a.segment, ten(), "bytes 0-9/10", "../../etc"), "invalid")
	a.wantKind("the right hash", a.put(a.segment, ten(), "bytes 0-9/10", sumOf([]byte("0123456789"))), "")
	a.wantKind("the same again", a.put(a.segment, ten(), "bytes 0-9/10", ""), "upload-offset")
	a.wantUnharmed(before)
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestRemoteFiles_ReceiveAFileOnceFromTwoRequests(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	before := a.snapshot()
	content := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	contentRange := fmt.Sprintf("bytes 0-%d/%d", len(content)-1, len(content))
	replies := make(chan reply, 2)
	for range cap(replies) {
		go func() { replies <- a.put(a.segment, bytes.NewReader(content), contentRange, sumOf(content)) }()
	}
	first, second := <-replies, <-replies
	if first.status >= 300 {
		first, second = second, first
	}
	a.wantKind("one of two", first, "")
	a.wantKind("the other", second, "upload-offset")
	// The answer to the other may be of while the first was being written.
	r := a.send("HEAD", "key-evil", "/claims/"+a.transcode.String()+"/output/"+a.segment, nil, nil)
	if got := r.header.Get("Upload-Offset"); got != fmt.Sprint(len(content)) {
		t.Errorf("the file has %s bytes", got)
	}
	a.wantUnharmed(before)
}

func TestRemoteFiles_FollowNoLinksInTheReceivingDirectory(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	outside := t.TempDir()
	before := a.snapshot()
	files := NewRemoteFiles(a.Config, a.Result)
	w, err := files.receiving(a.claimOf(transcodeStage), transcodeStage)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(w.path, filepath.Dir(a.segment))
	if err := os.Mkdir(w.path, 0o700); err != nil {
		t.Fatal(err)
	}
	link := func(target, at string) {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, at); err != nil {
			t.Fatal(err)
		}
	}
	send := func() reply { return a.put(a.segment, strings.NewReader("x"), "bytes 0-0/1", "") }
	link(filepath.Join(outside, "file"), filepath.Join(w.path, filepath.FromSlash(a.segment)))
	a.wantKind("a link in the place of a file", send(), "invalid")
	link(outside, folder)
	a.wantKind("a link in the place of a folder", send(), "invalid")
	if all, err := os.ReadDir(outside); err != nil || len(all) != 0 {
		t.Errorf("outside are %v, %v", all, err)
	}
	a.wantUnharmed(before)
}

// claimOf is the engine's claim of a stage.
func (a *attacker) claimOf(stage string) engine.Claim {
	a.t.Helper()
	number, _ := store.Video().Stage(stage)
	c := engine.Claim{Task: a.task, Stage: number, Part: 1, Spec: wholeSpec, Attempt: 1, Token: a.transcode}
	if stage == metadataStage {
		c.Token = a.metadata
	}
	return c
}

func TestRemoteFiles_AcceptNothingFromOtherKeysOrForOtherStages(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	before := a.snapshot()
	claim := "/claims/" + a.transcode.String()
	segment := claim + "/output/" + a.segment
	one := http.Header{"Content-Range": {"bytes 0-0/1"}}
	put := func(key, path string) reply { return a.send("PUT", key, path, strings.NewReader("x"), one) }
	a.wantKind("an output by another key", put("key-other", segment), "claim-lost")
	a.wantKind("an input by another key", a.send("GET", "key-other", claim+"/input/"+a.source, nil, nil), "claim-lost")
	a.wantKind("a completion by another key", a.report("key-other", a.transcode, `"outcome":"completed"`), "worker-unknown")
	a.wantKind("a token of nobody", put("key-evil", "/claims/"+store.ID{9}.String()+"/output/"+a.segment), "claim-lost")
	a.wantKind("no token", put("key-evil", "/claims/x/output/"+a.segment), "not-found")
	a.wantKind("a segment for metadata", put("key-evil", "/claims/"+a.metadata.String()+"/output/"+a.segment), "invalid")
	a.wantKind("a poster for transcode", put("key-evil", claim+"/output/poster.jpg"), "invalid")
	for _, stage := range []string{ingestStage, assembleStage, publishStage} {
		body := fmt.Sprintf(`{"worker_id":%q,"free_slots":{%q:1}}`, a.worker, stage)
		a.wantKind("slots of "+stage, a.send("POST", "key-evil", "/exchange", strings.NewReader(body), nil), "invalid")
	}
	a.revoke("key-evil", true)
	a.wantKind("an output after the key was revoked", put("key-evil", segment), "unauthenticated")
	a.wantKind("a completion after that", a.report("key-evil", a.transcode, `"outcome":"completed"`), "unauthenticated")
	a.revoke("key-evil", false)
	a.wantUnharmed(before)
}

func TestRemoteFiles_RefuseCompletionsWithoutFiles(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	before := a.snapshot()
	results := []string{
		`null`, `[]`, `{"dir":"../../.."}`, `{"note":"` + strings.Repeat("x", 17<<20) + `"}`,
	}
	for n, result := range results {
		token := a.transcode
		complete := func() string {
			return string(a.report("key-evil", token, `"outcome":"completed","result":`+result).body)
		}
		waittest.Until(t, fmt.Sprintf("result %d is refused", n), func() bool { return strings.Contains(complete(), `"refused":[`) })
		if answer := complete(); !strings.Contains(answer, `"stale":[`) {
			t.Errorf("the answer to the same again is %s", answer)
		}
		history, err := a.History(context.Background(), a.task)
		if last := history[len(history)-1]; err != nil || last.Class != remote.ClassRefused || last.Token != token {
			t.Fatalf("the last attempt is %+v, %v", last, err)
		}
		a.retryNow()
		a.claimTranscode()
	}
	a.mu.Lock()
	if len(a.refusals) != 4 {
		t.Errorf("refusals are %q", a.refusals)
	}
	a.mu.Unlock()
	a.wantUnharmed(before)
}

// wholeSpec is that of the only part of an undivided transcode.
var wholeSpec = json.RawMessage(`{"makes":"whole"}`)

// retryNow makes the retry of transcode's part due.
func (a *attacker) retryNow() {
	a.t.Helper()
	_, err := a.pool.Exec(context.Background(),
		"update steps set run_at = now() where task_id = $1 and part > 0 and status = 'waiting'", a.task)
	if err != nil {
		a.t.Fatal(err)
	}
}

// claimTranscode claims the stage again.
func (a *attacker) claimTranscode() {
	a.t.Helper()
	a.transcode = store.ID{}
	waittest.Until(a.t, "transcode is claimed", func() bool {
		var out struct {
			Claims []struct {
				Token store.ID `json:"token"`
			}
		}
		a.post("key-evil", "/exchange", fmt.Sprintf(`{"worker_id":%q,"free_slots":{"transcode":1},"wait_s":1}`, a.worker), &out)
		for _, c := range out.Claims {
			a.transcode = c.Token
		}
		return !a.transcode.IsZero()
	})
}

func TestRemoteFiles_ChangeNothingThatAnotherCoordinatorChecks(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	one, two := NewRemoteFiles(a.Config, a.Result), NewRemoteFiles(a.Config, a.Result)
	h, m := readyHarness(t)
	poster, err := os.ReadFile(filepath.Join(h.TaskDir(h.job.Task), m.md.Dir, posterFile))
	if err != nil {
		t.Fatal(err)
	}
	claim, total := a.claimOf(metadataStage), int64(len(poster))+10
	ctx := context.Background()
	if err := one.WriteOutput(ctx, claim, posterFile, 0, total, "", bytes.NewReader(poster)); err != nil {
		t.Fatal(err)
	}
	// The other coordinator receives more, for as long as the worker likes.
	body, rest := io.Pipe()
	written := make(chan error, 1)
	go func() { written <- two.WriteOutput(ctx, claim, posterFile, total-10, total, "", body) }()
	if _, err := rest.Write([]byte("01234")); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := one.Accept(short, claim, []byte(`{}`)); err == nil {
		t.Error("files are accepted while another coordinator writes them")
	}
	rest.Close()
	if err := <-written; err != nil {
		t.Error(err)
	}
	if _, err := one.Accept(ctx, claim, []byte(`{}`)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := two.WriteOutput(ctx, claim, posterFile, total-5, total, "", strings.NewReader("56789")); err == nil {
		t.Error("a file is written after it was accepted")
	}
}
