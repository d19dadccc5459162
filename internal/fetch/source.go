package fetch

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/cuelight/cuelight/internal/redact"
)

// source is a submitted source, understood.
type source struct {
	path  string   // a local file's absolute path, or
	url   *url.URL // an http or https URL
	name  string   // for people
	label string   // for errors: quoted, without secrets
}

var schemePattern = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*)://`)

// Check says what is wrong with the form of a source, if anything: whether it can be
// had is not asked. Its error names no secret.
func Check(s string) error {
	_, err := parseSource(s)
	return err
}

// parseSource decides what s is; the package's documentation has the rule.
// The label is set even when there is an error.
func parseSource(s string) (source, error) {
	if s == "" {
		return source{label: `""`}, errors.New("no source is given")
	}
	if strings.HasPrefix(s, "/") {
		return localSource(s)
	}
	m := schemePattern.FindStringSubmatch(s)
	if m == nil {
		return source{label: quote(redact.Source(s))}, errors.New("the path is not absolute")
	}
	scheme := strings.ToLower(m[1])
	// Until the URL is known to be in order, nothing of it but its scheme is
	// known to be no secret.
	src := source{label: quote(scheme + "://…")}
	switch scheme {
	case "http", "https", "file":
	default:
		return src, fmt.Errorf("%s addresses are not supported, only http, https and files", scheme)
	}
	u, err := url.Parse(s)
	if err != nil {
		return src, errors.New("this is not a valid URL")
	}
	if scheme == "file" {
		return fileURL(u, src)
	}
	if u.Hostname() == "" {
		return src, errors.New("the URL names no host")
	}
	return source{url: u, name: urlName(u), label: quote(redact.Source(s))}, nil
}

func localSource(p string) (source, error) {
	// Not cleaned: where "a" is a symbolic link, "a/../b" is not "b".
	src := source{path: p, name: displayName(filepath.Base(p)), label: quote(p)}
	if strings.ContainsRune(p, 0) {
		return src, errors.New("there is a zero byte in the path")
	}
	return src, nil
}

func fileURL(u *url.URL, src source) (source, error) {
	if u.Host != "" && !strings.EqualFold(u.Host, "localhost") {
		return src, errors.New("a file URL that names another host cannot be read")
	}
	if !strings.HasPrefix(u.Path, "/") {
		return src, errors.New("the file URL has no absolute path")
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return src, errors.New(`"?" and "#" in a file URL's path must be written as %3F and %23`)
	}
	return localSource(u.Path)
}

func urlName(u *url.URL) string {
	if base := path.Base(u.Path); base != "/" && base != "." {
		return displayName(base)
	}
	return displayName(u.Hostname())
}

// displayName makes a name that any terminal, page or database can take. No
// file system has longer ones, but URLs do.
func displayName(s string) string {
	const most = 255
	s = strings.ToValidUTF8(s[:min(len(s), most)], "\uFFFD")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// quote shows s in full, but never a whole kilobyte of it.
func quote(s string) string {
	const most = 1000
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
