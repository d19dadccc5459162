package access_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cuelight/cuelight/internal/access"
)

func TestLoadSecret_CreatesASecretOnceForAllProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "admin-secret")
	var wg sync.WaitGroup
	var mu sync.Mutex
	found := make(map[access.Secret]int)
	makers := 0
	for range 8 {
		wg.Go(func() {
			s, made, err := access.LoadSecret(path)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			found[s]++
			if made {
				makers++
			}
		})
	}
	wg.Wait()
	if len(found) != 1 || makers != 1 {
		t.Errorf("%d calls created a secret; %d different ones were returned", makers, len(found))
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("remaining: %v", left)
	}
	text, _ := os.ReadFile(path)
	if want, err := access.NewSecret(strings.TrimSpace(string(text))); err != nil || found[want] != 8 {
		t.Errorf("the file has another secret, %v", err)
	}
}

func TestLoadSecret_RejectsWeakOrReadableSecrets(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("s", 32)
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		ok   bool
	}{
		"long enough":            {good, 0o600, true},
		"with a line's end":      {good + "\n", 0o400, true},
		"with DOS's line's end":  {good + "\r\n", 0o600, true},
		"for a group to read":    {good, 0o440, true},
		"too short":              {good[1:] + "\n", 0o600, false},
		"empty":                  {"", 0o600, false},
		"too long":               {strings.Repeat("s", 1025), 0o600, false},
		"for everybody to read":  {good, 0o604, false},
		"for a group to write":   {good, 0o620, false},
		"two lines":              {good + "\n" + good, 0o600, false},
		"not for a header":       {good + "é", 0o600, false},
		"with a space":           {good + " x", 0o600, false},
		"for everybody to write": {good, 0o602, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "s")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			_, made, err := access.LoadSecret(path)
			if (err == nil) != c.ok || made {
				t.Errorf("made %t, %v", made, err)
			}
			if err != nil && strings.Contains(err.Error(), good) {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "no", "dir")} {
		if _, _, err := access.LoadSecret(path); err == nil {
			t.Errorf("%s: loaded", path)
		}
	}
}

func TestSecret_IsNotPrinted(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 32)
	s, err := access.NewSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	o := access.Options{Admin: s}
	digest := sha256.Sum256([]byte(text))
	for _, printed := range []string{
		fmt.Sprint(s), fmt.Sprintf("%+v", s), fmt.Sprintf("%#v", s), fmt.Sprintf("%+v", o),
	} {
		for _, form := range []string{"%x", "%v", "%#v", "%q", "%d"} {
			// A part of the digest without its brackets is enough.
			d := fmt.Sprintf(form, digest[4:12])
			if strings.Contains(printed, strings.Trim(strings.TrimPrefix(d, "[]byte"), "[]{}\"")) {
				t.Errorf("printed as %s", printed)
			}
		}
		if strings.Contains(printed, text) {
			t.Errorf("printed as %s", printed)
		}
	}
}
