package upload

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"hash"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Maximum sizes of client texts, in bytes.
const (
	maxMetadata  = 32 << 10 // the header, or one field of a form
	maxObject    = 10 << 10
	maxRequestID = 200
	maxUserID    = 2048
	maxName      = 255
)

// parseMetadata parses the header Upload-Metadata: pairs of a key and an optional Base64
// value.
func parseMetadata(header string) (map[string]string, error) {
	metadata := make(map[string]string)
	if len(header) > maxMetadata {
		return nil, badRequest("Upload-Metadata is longer than %d bytes", maxMetadata)
	}
	if strings.TrimSpace(header) == "" {
		return metadata, nil
	}
	for pair := range strings.SplitSeq(header, ",") {
		key, encoded, _ := strings.Cut(strings.Trim(pair, " \t"), " ")
		if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, badRequest("Upload-Metadata has a key that is empty or not ASCII")
		}
		if _, exists := metadata[key]; exists {
			return nil, badRequest("Upload-Metadata has %q twice", key)
		}
		value, err := base64.StdEncoding.DecodeString(strings.Trim(encoded, " \t"))
		if err != nil {
			return nil, badRequest("Upload-Metadata: the value of %q is not Base64", key)
		}
		metadata[key] = string(value)
	}
	return metadata, nil
}

// newUpload parses a client's metadata.
func newUpload(metadata map[string]string) (Upload, error) {
	for key, value := range metadata {
		if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return Upload{}, badRequest("%s is not UTF-8 text without NUL", strconv.QuoteToASCII(key))
		}
	}
	u := Upload{
		Name:      cleanName(cmp.Or(metadata["filename"], metadata["name"])),
		Type:      cmp.Or(metadata["filetype"], metadata["type"]),
		UserID:    metadata["user_id"],
		RequestID: metadata["request_id"],
		SHA256:    strings.ToLower(metadata["sha256"]),
		Metadata:  metadata,
	}
	if len(u.RequestID) > maxRequestID {
		return u, badRequest("request_id is longer than %d bytes", maxRequestID)
	}
	if len(u.UserID) > maxUserID {
		return u, badRequest("user_id is longer than %d bytes", maxUserID)
	}
	if text := metadata["priority"]; text != "" {
		n, err := strconv.ParseInt(text, 10, 16)
		if err != nil {
			return u, badRequest("priority is not a number between -32768 and 32767")
		}
		u.Priority = int16(n)
	}
	if u.SHA256 != "" {
		if sum, err := hex.DecodeString(u.SHA256); err != nil || len(sum) != sha256.Size {
			return u, badRequest("sha256 is not 64 hexadecimal digits")
		}
	}
	var err error
	if u.Params, err = parseObject("params", metadata["params"]); err != nil {
		return u, err
	}
	if u.UserContext, err = parseObject("user_context", metadata["user_context"]); err != nil {
		return u, err
	}
	u.Placement, err = parseObject("placement", metadata["placement"])
	return u, err
}

func parseObject(name, text string) (json.RawMessage, error) {
	raw := bytes.TrimSpace([]byte(text))
	switch {
	case len(raw) == 0:
		return nil, nil
	case len(raw) > maxObject:
		return nil, badRequest("%s: it is longer than %d bytes", name, maxObject)
	case raw[0] != '{' || !json.Valid(raw):
		return nil, badRequest("%s: it is not a JSON object", name)
	}
	return raw, nil
}

// cleanName returns a name for display: the last element of a path of any system, without
// unprintable characters and characters that reorder text.
func cleanName(name string) string {
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, ""))
	name = strings.TrimSpace(name)
	if len(name) > maxName {
		ext := safeExtension(name)
		name = strings.TrimSpace(strings.ToValidUTF8(name[:maxName-len(ext)], "") + ext)
	}
	if name == "." || name == ".." {
		return ""
	}
	return name
}

var extensionPattern = regexp.MustCompile(`^\.[a-z0-9]{1,8}$`)

// safeExtension returns the file extension if it is short and alphanumeric. Paths contain
// no other text from clients.
func safeExtension(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if !extensionPattern.MatchString(ext) {
		return ""
	}
	return ext
}

// parseSize parses a number of bytes. It accepts only digits: other programs may not
// accept the other forms of strconv.
func parseSize(header string) (int64, bool) {
	if header == "" || strings.Trim(header, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(header, 10, 64)
	return n, err == nil
}

// checksum is the value of the header Upload-Checksum.
type checksum struct {
	hash hash.Hash
	want []byte
}

const checksumAlgorithms = "sha1,sha256"

// parseChecksum parses Upload-Checksum. It returns nil for an empty header.
func parseChecksum(header string) (*checksum, error) {
	if header == "" {
		return nil, nil
	}
	algorithm, encoded, _ := strings.Cut(header, " ")
	c := &checksum{}
	switch algorithm {
	case "sha1":
		c.hash = sha1.New()
	case "sha256":
		c.hash = sha256.New()
	default:
		return nil, badRequest("Upload-Checksum: unknown algorithm; allowed: %s", checksumAlgorithms)
	}
	want, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(want) != c.hash.Size() {
		return nil, badRequest("Upload-Checksum is not a checksum in Base64")
	}
	c.want = want
	return c, nil
}

func (c *checksum) matches() bool { return bytes.Equal(c.hash.Sum(nil), c.want) }
