package media

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/formattest"
)

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestKey_EncryptsAsInRFC3602(t *testing.T) {
	t.Parallel()
	key := Key(unhex(t, "06a9214036b8a15b512e03d534120006"))
	iv := unhex(t, "3dafba429d9eb430b422da802c9fac41")
	got := key.encrypt([]byte("Single block msg"), iv)
	if want := unhex(t, "e353779c1079aeb82708942dbe77181a"); len(got) != 32 || !bytes.Equal(got[:16], want) {
		t.Errorf("%x; want %x and a block of padding", got, want)
	}
	// Others would not fit the videos that are published.
	if iv := hex.EncodeToString(key.iv("240p")); key.ID() != "75bb424f5f2b668c" || iv != "96ab613106fbc824c8364d0d52a23a88" {
		t.Errorf("the id is %s, the initialization vector %s", key.ID(), iv)
	}
	for length := range 40 {
		text := bytes.Repeat([]byte{7}, length)
		encrypted := key.encrypt(text, iv)
		if again, err := key.decrypt(encrypted, iv); err != nil || !bytes.Equal(again, text) || len(encrypted) != length/16*16+16 {
			t.Errorf("%d bytes become %d, and then %v, %v", length, len(encrypted), again, err)
		}
	}
	for name, wrong := range map[string][]byte{"nothing": nil, "half a block": got[:24], "without the last block": got[:16]} {
		if text, err := key.decrypt(wrong, iv); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if _, err := (Key{1}).decrypt(got, iv); !errors.Is(err, ErrMismatch) {
		t.Errorf("with another key: %v", err)
	}
	if printed := fmt.Sprintf("%v %+v %s", key, []Key{key}, key); strings.Count(printed, key.ID()) != 3 || len(printed) != 3*16+4 {
		t.Errorf("a key is printed as %s", printed)
	}
}

func TestEncrypt_ReplacesSegmentsAndNamesTheKeyAfterTheInitializationSegment(t *testing.T) {
	t.Parallel()
	dir, linked, key := t.TempDir(), t.TempDir(), Key{1, 2, 3}
	const playlist = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:6\n#EXT-X-MAP:URI=\"init.mp4\"\n" +
		"#EXTINF:6.000000,\na.m4s\n#EXTINF:1.000000,\nb.m4s\n#EXT-X-ENDLIST\n"
	out := &Output{
		Video: []Rendition{{Name: "240p", Playlist: "240p/240p.m3u8", Codecs: "avc1.64000d"}},
		Audio: []Rendition{{Name: "audio", Group: "audio", Playlist: "audio/audio.m3u8", Codecs: "mp4a.40.2"}},
	}
	clear := map[string]string{"init.mp4": "clear", "a.m4s": strings.Repeat("a", 32), "b.m4s": "b"}
	for _, folder := range []string{"240p", "audio"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		clear[folder+".m3u8"] = playlist
		for name, text := range clear {
			file := filepath.Join(dir, folder, name)
			if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.Link(file, filepath.Join(linked, folder+name))); err != nil {
				t.Fatal(err)
			}
		}
		delete(clear, folder+".m3u8")
	}
	if id, err := EncryptionKeyOf(dir, out); id != "" || err != nil {
		t.Errorf("before: %q, %v", id, err)
	}
	tools := Tools{}
	if err := tools.Encrypt(t.Context(), dir, out, key, "../../key/"+key.ID()); err != nil {
		t.Fatal(err)
	}
	ivs := make(map[string]bool)
	for _, folder := range []string{"240p", "audio"} {
		text := mustRead(t, filepath.Join(dir, folder, folder+".m3u8"))
		iv := key.iv(folder)
		ivs[string(iv)] = true
		tag := fmt.Sprintf("#EXT-X-KEY:METHOD=AES-128,URI=\"../../key/%s\",IV=0x%x\n", key.ID(), iv)
		if text != strings.Replace(playlist, "#EXTINF:6", tag+"#EXTINF:6", 1) {
			t.Errorf("the playlist is\n%s", text)
		}
		if _, err := formattest.Playlist([]byte(text)); err != nil {
			t.Error(err)
		}
		for name, want := range clear {
			got := mustRead(t, filepath.Join(dir, folder, name))
			if other := mustRead(t, filepath.Join(linked, folder+name)); other != want {
				t.Errorf("the file with another link, %s, became %q", name, other)
			}
			if name != "init.mp4" {
				text, err := key.decrypt([]byte(got), iv)
				if got == want || err != nil {
					t.Errorf("%s is %q, %v", name, got, err)
				}
				got = string(text)
			}
			if got != want {
				t.Errorf("%s has %q; want %q", name, got, want)
			}
		}
	}
	if id, err := EncryptionKeyOf(dir, out); id != key.ID() || err != nil || len(ivs) != 2 {
		t.Errorf("afterwards: %q, %v, with %d initialization vectors", id, err, len(ivs))
	}
	// Again, it changes nothing, and finds damage and other keys.
	segment := filepath.Join(dir, "audio", "b.m4s")
	before := mustRead(t, segment)
	if err := tools.Encrypt(t.Context(), dir, out, key, ""); err != nil || mustRead(t, segment) != before {
		t.Errorf("again: %v", err)
	}
	if err := tools.Encrypt(t.Context(), dir, out, Key{9}, ""); !errors.Is(err, ErrMismatch) {
		t.Errorf("with another key: %v", err)
	}
	if err := os.WriteFile(segment, []byte(before[:8]), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := tools.Encrypt(t.Context(), dir, out, key, ""); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "b.m4s") {
		t.Errorf("with a damaged segment: %v", err)
	}
	if err := WriteEncryptedManifests(dir, out); err != nil {
		t.Fatal(err)
	}
	text := mustRead(t, filepath.Join(dir, MasterName))
	if strings.Contains(text, "I-FRAME") || !strings.Contains(text, "\n240p/240p.m3u8\n") {
		t.Errorf("the multivariant playlist is\n%s", text)
	}
}
