package playback_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/store"
)

// Another derivation would make all published videos unplayable.
func TestEncryptionKeys_AreTheSameForEver(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secrets", "encryption")
	created, err := playback.EncryptionKeys(file)(store.ID{7})
	info, statErr := os.Stat(file)
	if err != nil || statErr != nil || len(created) != 1 || info.Mode().Perm() != 0o600 {
		t.Fatalf("%d keys, %v, %v, %v", len(created), err, info, statErr)
	}
	const first, second = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	if err := os.WriteFile(file, []byte(first+"\n"+second+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for task, want := range map[store.ID][]string{
		{7}: {"21412d04caf8a25b254a506fc93f6249", "533c57f27ef365311ab8cbfe10485817"},
		{8}: {"45b28fbb9f21452a780b1bae63a9b863", "4b8eed45a273da1e36936f5d1b387729"},
	} {
		keys, err := playback.EncryptionKeys(file)(task)
		var got []string
		for _, key := range keys {
			got = append(got, hex.EncodeToString(key[:]))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: %q, %v; want %q", task, got, err, want)
		}
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if keys, err := playback.EncryptionKeys(file)(store.ID{7}); err == nil {
		t.Errorf("%d keys of a file that everybody can read", len(keys))
	}
}
