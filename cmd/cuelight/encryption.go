package main

import (
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
)

// encryptionFlags are the flags of the keys of encrypted videos.
type encryptionFlags struct{ file, url string }

func (e *encryptionFlags) add(f *pflag.FlagSet) {
	f.StringVar(&e.file, "encryption-keys", "",
		"file with the secrets of encrypted videos, one in each line, the same on all hosts (default DATA-DIR/secrets/encryption)")
	f.StringVar(&e.url, "encryption-key-url", "",
		"address from which players get the keys of encrypted videos, such as https://keys.example/{id} (default next to the published files)")
}

var encryptionKeyURL = regexp.MustCompile(`^(https?://[^\s"?#/]+/[^\s"?#]*\{id\}[^\s"?#]*)?$`)

func (e *encryptionFlags) check() flagCheck {
	const wanted = "an address with {id}, such as https://keys.example/{id}"
	return flagCheck{encryptionKeyURL.MatchString(e.url), "encryption-key-url", e.url, wanted}
}

// set sets where keys come from. Hosts with a bucket share no directory: without a named file, each would have other keys.
func (e *encryptionFlags) set(config *video.Config) error {
	file := e.file
	if _, err := os.Stat(file); file != "" && err != nil {
		return usererr.Usagef("--encryption-keys %s: %s; put a line of openssl rand -base64 32 into it, with mode 600, the same on all hosts",
			usererr.Printable(file), usererr.SystemMessage(err))
	}
	if file == "" && config.Bucket == nil {
		file = filepath.Join(config.DataDir, "secrets", "encryption")
	}
	if config.EncryptionKeyURL = e.url; file != "" {
		config.EncryptionKeys = playback.EncryptionKeys(file)
	}
	return nil
}
