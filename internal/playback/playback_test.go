package playback_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/store"
)

func load(t *testing.T, path string) playback.Keys {
	t.Helper()
	k, err := playback.LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeys_VerifyWhatTheySigned(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "playback")
	keys, task, now := load(t, path), store.ID{15: 7}, time.Unix(1_800_000_000, 0)
	token := keys.Sign(task, now.Add(time.Hour))
	if got, err := load(t, path).Verify(task, token, now); err != nil || !got.Equal(now.Add(time.Hour)) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := keys.Verify(task, token, now.Add(time.Hour)); !errors.Is(err, playback.ErrExpired) {
		t.Errorf("an hour later: %v", err)
	}
	at, signature, _ := strings.Cut(token, "-")
	for name, c := range map[string]struct {
		task  store.ID
		token string
	}{
		"another task": {store.ID{15: 8}, token}, "a later time": {task, "zzzzzzz-" + signature}, "no signature": {task, at + "-"},
		"nothing": {task, ""}, "another signature": {task, at + "-" + strings.Repeat("A", 22)}, "more": {task, token + "A"},
	} {
		if _, err := keys.Verify(c.task, c.token, now); !errors.Is(err, playback.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeys_AreReplacedWithoutEndingAddresses(t *testing.T) {
	t.Parallel()
	path, task, now := filepath.Join(t.TempDir(), "playback"), store.ID{15: 7}, time.Now()
	old := load(t, path).Sign(task, now.Add(time.Hour))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fresh := strings.Repeat("k", 32) + "\n"
	for name, c := range map[string]struct {
		lines string
		want  error
	}{
		"the new one first": {fresh + string(text), nil}, "the new one alone": {fresh, playback.ErrInvalid},
	} {
		if err := os.WriteFile(path, []byte(c.lines), 0o600); err != nil {
			t.Fatal(err)
		}
		keys := load(t, path)
		if _, err := keys.Verify(task, old, now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
		if _, err := keys.Verify(task, keys.Sign(task, now.Add(time.Hour)), now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"short\n", fresh + "short\n", ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := playback.LoadKeys(path); err == nil {
			t.Errorf("a file with %q was accepted", text)
		}
	}
}
