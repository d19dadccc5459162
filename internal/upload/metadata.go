package upload

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"hash"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of what clients may say, in bytes.
const (
	maxMetadata  = 32 << 10 // the header, or one field of a form
	maxParams    = 10 << 10
	maxRequestID = 200
	maxUserID    = 2048
	maxName      = 255
)

// parseMetadata reads the header Upload-Metadata: pairs of a key and a value
// in Base64, which may be missing.
func parseMetadata(header string) (map[string]string, error) {
	said := make(map[string]string)
	if len(header) > maxMetadata {
		return nil, newProblem(http.StatusBadRequest, "Upload-Metadata is longer than %d bytes", maxMetadata)
	}
	if strings.TrimSpace(header) == "" {
		return said, nil
	}
	for pair := range strings.SplitSeq(header, ",") {
		key, coded, _ := strings.Cut(strings.Trim(pair, " \t"), " ")
		if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, newProblem(http.StatusBadRequest, "Upload-Metadata has a key that is empty or not ASCII")
		}
		if _, twice := said[key]; twice {
			return nil, newProblem(http.StatusBadRequest, "Upload-Metadata has %q twice", key)
		}
		value, err := base64.StdEncoding.DecodeString(strings.Trim(coded, " \t"))
		if err != nil {
			return nil, newProblem(http.StatusBadRequest, "Upload-Metadata: the value of %q is not Base64", key)
		}
		said[key] = string(value)
	}
	return said, nil
}

// describe makes an upload of what a client said about it.
func newUpload(said map[string]string) (Upload, error) {
	for key, value := range said {
		if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return Upload{}, newProblem(http.StatusBadRequest, "%s is not UTF-8 text without NUL", strconv.QuoteToASCII(key))
		}
	}
	u := Upload{
		Name:      cleanName(firstNonEmpty(said["filename"], said["name"])),
		Type:      firstNonEmpty(said["filetype"], said["type"]),
		UserID:    said["user_id"],
		RequestID: said["request_id"],
		SHA256:    strings.ToLower(said["sha256"]),
		Metadata:  said,
	}
	if len(u.RequestID) > maxRequestID {
		return u, newProblem(http.StatusBadRequest, "request_id is longer than %d bytes", maxRequestID)
	}
	if len(u.UserID) > maxUserID {
		return u, newProblem(http.StatusBadRequest, "user_id is longer than %d bytes", maxUserID)
	}
	if text := said["priority"]; text != "" {
		n, err := strconv.ParseInt(text, 10, 16)
		if err != nil {
			return u, newProblem(http.StatusBadRequest, "priority is not a number between -32768 and 32767")
		}
		u.Priority = int16(n)
	}
	if u.SHA256 != "" {
		if sum, err := hex.DecodeString(u.SHA256); err != nil || len(sum) != sha256.Size {
			return u, newProblem(http.StatusBadRequest, "sha256 is not 64 hexadecimal digits")
		}
	}
	params, err := parseParams(said["params"])
	u.Params = params
	return u, err
}

func parseParams(text string) (json.RawMessage, error) {
	raw := bytes.TrimSpace([]byte(text))
	switch {
	case len(raw) == 0:
		return nil, nil
	case len(raw) > maxParams:
		return nil, newProblem(http.StatusBadRequest, "params are longer than %d bytes", maxParams)
	case raw[0] != '{' || !json.Valid(raw):
		return nil, newProblem(http.StatusBadRequest, "params are not a JSON object")
	}
	return raw, nil
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// cleanName makes a name that can be shown: the last element of what may have
// been a path of any system, without what would not print or would reorder the
// text around it.
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

// safeExtension is the ending of a name, if there is nothing odd about it: all
// that a path has of what a client says.
func safeExtension(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if !extensionPattern.MatchString(ext) {
		return ""
	}
	return ext
}

// parseSize reads a header that is a number of bytes: digits only, since what
// strconv takes besides would be understood differently elsewhere.
func parseSize(header string) (int64, bool) {
	if header == "" || strings.Trim(header, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(header, 10, 64)
	return n, err == nil
}

// checksum is what the header Upload-Checksum asks for.
type checksum struct {
	hash hash.Hash
	want []byte
}

const checksumAlgorithms = "sha1,sha256"

// parseChecksum reads Upload-Checksum. It returns nil where there is none.
func parseChecksum(header string) (*checksum, error) {
	if header == "" {
		return nil, nil
	}
	algorithm, coded, _ := strings.Cut(header, " ")
	c := &checksum{}
	switch algorithm {
	case "sha1":
		c.hash = sha1.New()
	case "sha256":
		c.hash = sha256.New()
	default:
		return nil, newProblem(http.StatusBadRequest, "Upload-Checksum: the algorithm is none of %s", checksumAlgorithms)
	}
	want, err := base64.StdEncoding.DecodeString(coded)
	if err != nil || len(want) != c.hash.Size() {
		return nil, newProblem(http.StatusBadRequest, "Upload-Checksum is not a checksum in Base64")
	}
	c.want = want
	return c, nil
}

func (c *checksum) matches() bool { return bytes.Equal(c.hash.Sum(nil), c.want) }
