package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sharedPrefix starts the names of socket directories in /run and /tmp.
const sharedPrefix = "cuelight-"

// maxSocketPath is the longest path of a socket on all systems, without the
// terminating zero byte.
const maxSocketPath = 102

// socketDir creates the directory of the socket: in the home if the path is short
// enough and clients can parse it, otherwise in /run or /tmp.
func socketDir(home string, as Account) (string, error) {
	sum := sha256.Sum256([]byte(home))
	id := hex.EncodeToString(sum[:6])
	candidates := []string{filepath.Join(home, runName)}
	if as.cred != nil {
		candidates = append(candidates, "/run/"+sharedPrefix+id)
	}
	// Not $XDG_RUNTIME_DIR: the system removes it when the user logs out, while the
	// server runs on. In /tmp the server touches its files every hour.
	candidates = append(candidates, fmt.Sprintf("/tmp/%s%d-%s", sharedPrefix, as.UID, id))

	var errs []error
	for _, dir := range candidates {
		if len(socketPath(dir)) > maxSocketPath || strings.ContainsAny(dir, ",\r\n") {
			continue // to clients a comma ends the path
		}
		err := ownDir(dir, as)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("create socket directory: %w", errors.Join(errs...))
}

// socketPath is the path of the socket in a directory.
func socketPath(dir string) string { return dir + "/.s.PGSQL." + port }

// ownDir creates a directory that only the account can use, or checks that it is one:
// in /tmp another user may have created it first.
func ownDir(dir string, as Account) error {
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil:
		return as.Own(dir)
	case !errors.Is(err, os.ErrExist):
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || ownerOf(info) != as.UID {
		return fmt.Errorf("%s is not a directory of user %s with mode 0700", dir, as.Name)
	}
	return nil
}
