package video

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const (
	oldSecret = "an-old-secret-of-thirty-two-characters"
	newSecret = "a-newer-secret-of-thirty-two-characters"
)

// encryptedHarness returns a harness whose settings ask for encryption, and the file with its secrets. The task was published clear.
func encryptedHarness(t *testing.T) (h *harness, m allResults, secrets string) {
	t.Helper()
	h, m = newPublished(t)
	secrets = filepath.Join(t.TempDir(), "encryption")
	writeSecrets(t, secrets, oldSecret)
	h.EncryptionKeys = fileKeys(secrets)
	m.in.Settings.Encryption = EncryptionAES128
	return h, m, secrets
}

// fileKeys returns keys of the lines of a file; without the file, one key.
func fileKeys(file string) func(store.ID) ([][16]byte, error) {
	return func(task store.ID) (keys [][16]byte, err error) {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			text, err = []byte(oldSecret), nil
		}
		for line := range strings.FieldsSeq(string(text)) {
			sum := sha256.Sum256([]byte(line + task.String()))
			keys = append(keys, [16]byte(sum[:16]))
		}
		return keys, err
	}
}

func writeSecrets(t *testing.T, file string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// mustPublishEncrypted assembles and publishes, and checks that a server with the files and the key plays the video.
func (h *harness) mustPublishEncrypted(m *allResults) Publish {
	h.t.Helper()
	m.as = must(h.t)(h.assemble(h.t.Context(), h.job, m.in, m.tr, m.md)).(Assemble)
	results := map[string]any{ingestStage: m.in, transcodeStage: m.tr, metadataStage: m.md, assembleStage: m.as}
	h.job.Results = func(_ context.Context, stage string) (json.RawMessage, error) { return json.Marshal(results[stage]) }
	p := h.mustPublish(*m)
	if p.Manifest != "" || exists(filepath.Join(h.PublishedDir(h.job.Task), media.ManifestName)) {
		h.t.Errorf("it has a DASH manifest: %+v", p)
	}
	keyAt := "/" + h.job.Task.String() + "/" + EncryptionKeyPath
	files := http.FileServer(http.Dir(h.PublishDir))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, isKey := strings.CutPrefix(r.URL.Path, keyAt)
		if !isKey {
			files.ServeHTTP(w, r)
			return
		}
		key, err := h.FindEncryptionKey(h.job.Task, id)
		if err != nil {
			h.t.Errorf("a player asks for %s: %v", r.URL, err)
		}
		_, _ = w.Write(key[:])
	}))
	defer s.Close()
	wantPlayable(h.t, s.URL+"/"+p.Master, slices.Concat(m.tr.Output.Video, m.tr.Output.Audio))
	return p
}

// segments returns the published segments and media playlists by name.
func (h *harness) segments(p Publish) map[string]string {
	h.t.Helper()
	all := make(map[string]string)
	root := filepath.Join(h.PublishDir, p.Generation)
	err := filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(root, file); err == nil && !e.IsDir() && strings.Contains(name, "/") && !strings.HasPrefix(name, "captions") {
			all[name] = read(h.t, file)
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

func TestAssemble_EncryptsSegmentsAndKeepsTheKeyOfAPublishedVideo(t *testing.T) {
	t.Parallel()
	h, m, secrets := encryptedHarness(t)
	transcoded := snapshot(t, filepath.Join(h.TaskDir(h.job.Task), m.tr.Dir))
	first := h.mustPublishEncrypted(&m)
	published := h.segments(first)
	for name, text := range published {
		isMedia, ext := strings.HasPrefix(text, "\x00\x00\x00"), path.Ext(name)
		if path.Base(name) == "iframes.m3u8" || ext == ".m4s" && isMedia || ext == ".mp4" && !isMedia {
			t.Errorf("%s: clear %v", name, isMedia)
		}
		address := `#EXT-X-MAP:URI="init.mp4"` + "\n" + `#EXT-X-KEY:METHOD=AES-128,URI="../../key/` + m.as.EncryptionKeyID + `",IV=0x`
		if ext == ".m3u8" && strings.Count(text, address) != 1 {
			t.Errorf("%s has no %s:\n%s", name, address, text)
		}
	}
	if master := read(t, filepath.Join(h.PublishDir, first.Master)); strings.Contains(master, "I-FRAME") || len(published) < 6 {
		t.Errorf("%d files, and the multivariant playlist\n%s", len(published), master)
	}
	wantSame(t, transcoded, snapshot(t, filepath.Join(h.TaskDir(h.job.Task), m.tr.Dir)))
	again := h.mustPublishEncrypted(&m)
	wantSame(t, published, h.segments(again))

	// A new secret is for new versions. When only the published files are left, these keep their key.
	writeSecrets(t, secrets, newSecret, oldSecret)
	removeSourceCopies(t, h.Config)
	old := m.as.EncryptionKeyID
	h.Captions = func(context.Context, store.ID) ([]AttachedCaptions, error) {
		return []AttachedCaptions{{Language: "fr", WebVTT: []byte("WEBVTT\n\n00:01.000 --> 00:02.000\nBonjour\n")}}, nil
	}
	captioned := h.mustPublishEncrypted(&m)
	wantSame(t, published, h.segments(captioned))
	master := read(t, filepath.Join(h.PublishDir, captioned.Master))
	if !strings.Contains(master, `LANGUAGE="fr"`) || m.as.EncryptionKeyID != old {
		t.Errorf("the key is %s, before %s; the multivariant playlist is\n%s", m.as.EncryptionKeyID, old, master)
	}
	segment := filepath.Join(m.tr.Output.Video[0].Name, "seg-00000.m4s")
	if !sameFile(t, filepath.Join(h.PublishDir, captioned.Generation, segment), filepath.Join(h.PublishDir, again.Generation, segment)) {
		t.Error("the encrypted segments were not linked")
	}
	// Without its secret, nothing is published.
	writeSecrets(t, secrets, newSecret)
	_, err := h.assemble(t.Context(), h.job, m.in, m.tr, m.md)
	wantRetry(t, "without the secret", err)
	if err == nil || !strings.Contains(err.Error(), old) || !strings.Contains(err.Error(), "--encryption-keys") {
		t.Errorf("without the secret: %v", err)
	}
	writeSecrets(t, secrets, newSecret, oldSecret)
	other := newHarness(t, clips.picture)
	other.EncryptionKeys = h.EncryptionKeys
	if err := other.job.Task.UnmarshalText([]byte("01a1f897-3d3a-79a9-8ad1-302c5e8ba6ae")); err != nil {
		t.Fatal(err)
	}
	if _, err := other.FindEncryptionKey(other.job.Task, old); err == nil {
		t.Error("two videos have one key")
	}
}

func TestAssemble_EncryptsWithTheNewestSecretForTheAddressOfAKeyServer(t *testing.T) {
	t.Parallel()
	h, m, secrets := encryptedHarness(t)
	h.EncryptionKeyURL = "https://keys.example/video/{id}"
	ids := make(map[string]bool)
	for _, lines := range [][]string{{oldSecret}, {newSecret, oldSecret}} {
		writeSecrets(t, secrets, lines...)
		as := must(t)(h.assemble(t.Context(), h.job, m.in, m.tr, m.md)).(Assemble)
		text := read(t, filepath.Join(h.TaskDir(h.job.Task), as.Dir, m.tr.Output.Video[0].Playlist))
		want := `URI="https://keys.example/video/` + h.job.Task.String() + "?key=" + as.EncryptionKeyID + `",IV=0x`
		if ids[as.EncryptionKeyID] = true; !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if len(ids) != 2 {
		t.Errorf("a new secret changes no key: %v", ids)
	}
	h.EncryptionKeys = nil
	_, err := h.assemble(t.Context(), h.job, m.in, m.tr, m.md)
	wantRetry(t, "without keys", err)
}

func TestPublishEarly_Encrypts(t *testing.T) {
	t.Parallel()
	h, m, _ := encryptedHarness(t)
	h.job.Results = nil
	if err := h.publishEarly(t.Context(), h.job, h.TaskDir(h.job.Task), m.in, m.tr); err != nil {
		t.Fatal(err)
	}
	master := read(t, filepath.Join(h.PublishedDir(h.job.Task), media.MasterName))
	generation := generationPattern.FindString(master)
	if id, err := media.EncryptionKeyOf(filepath.Join(h.PublishedDir(h.job.Task), generation), m.tr.Output); err != nil || id == "" {
		t.Errorf("%s is encrypted with %q, %v", generation, id, err)
	}
	if exists(filepath.Join(h.PublishedDir(h.job.Task), media.ManifestName)) {
		t.Error("it has a DASH manifest")
	}
}

func TestPublish_ChecksCopiesOfEncryptedSegments(t *testing.T) {
	t.Parallel()
	h, m, secrets := encryptedHarness(t)
	h.PublishDir = otherFileSystem(t)
	h.mustPublishEncrypted(&m)
	writeSecrets(t, secrets, newSecret)
	if _, err := h.tryPublish(m); err == nil || !strings.Contains(err.Error(), m.as.EncryptionKeyID) {
		t.Errorf("without the secret: %v", err)
	}
}

func TestStages_ReplaceAClearVersionInBucketsByAnEncryptedOne(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	h.job.Source = clips.sound
	c := Config{
		DataDir: t.TempDir(), Bucket: h.bucket("data"), PublishBucket: h.bucket("public"), Tools: testTools,
		EncryptionKeys: fileKeys(filepath.Join(t.TempDir(), "secrets", "encryption")),
	}
	manifest := regexp.MustCompile(`(?m)^#EXT-X-KEY:.*"\.\./\.\./key/[0-9a-f]{16}",`)
	for _, encrypted := range []bool{false, true} {
		if encrypted {
			h.job.Params = json.RawMessage(`{"encryption": "aes-128"}`)
		}
		for _, stage := range []string{ingestStage, transcodeStage, metadataStage, assembleStage, publishStage} {
			if err := h.run(Stages(c), stage); err != nil {
				t.Fatalf("%s: %v", stage, err)
			}
		}
		stable, err := c.PublishLocation().readStable(t.Context(), h.job.Task)
		if err != nil {
			t.Fatal(err)
		}
		if has := stable[1].content != nil; has == encrypted || stable.newest() == 0 {
			t.Errorf("encrypted %v: it has a DASH manifest: %v", encrypted, has)
		}
		tr, err := stages.Result[Transcode](t.Context(), h.job, transcodeStage)
		if err != nil {
			t.Fatal(err)
		}
		var p Publish
		if err := json.Unmarshal(h.results[publishStage], &p); err != nil {
			t.Fatal(err)
		}
		if text := h.read(c, path.Join(p.Generation, tr.Output.Audio[0].Playlist)); manifest.MatchString(text) != encrypted {
			t.Errorf("encrypted %v: the playlist is\n%s", encrypted, text)
		}
	}
}
