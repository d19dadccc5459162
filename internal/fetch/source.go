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

// source is a parsed source. Either path or url is set.
type source struct {
	path  string   // the absolute path of a local file
	url   *url.URL // an http or https URL
	name  string   // for display
	label string   // for errors: quoted, without secrets
}

var schemePattern = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*)://`)

// CheckSource returns an error if the form of a source is not supported. It does not
// check whether the source exists. The error contains no secret.
func CheckSource(s string) error {
	_, err := parseSource(s)
	return err
}

// parseSource implements the rules of the package documentation. It sets the label even
// if it returns an error.
func parseSource(s string) (source, error) {
	if s == "" {
		return source{label: `""`}, errors.New("no source is given")
	}
	if strings.HasPrefix(s, "/") {
		return localSource(s)
	}
	m := schemePattern.FindStringSubmatch(s)
	if m == nil {
		return source{label: quoteShort(redact.Source(s))}, errors.New("the path is not absolute")
	}
	scheme := strings.ToLower(m[1])
	// Every part of an invalid URL but its scheme may be a secret.
	src := source{label: quoteShort(scheme + "://…")}
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
	return source{url: u, name: urlName(u), label: quoteShort(redact.Source(s))}, nil
}

func localSource(p string) (source, error) {
	// The path is not cleaned: if "a" is a symbolic link, "a/../b" is not "b".
	src := source{path: p, name: displayName(filepath.Base(p)), label: quoteShort(p)}
	if strings.ContainsRune(p, 0) {
		return src, errors.New("the path contains a zero byte")
	}
	return src, nil
}

func fileURL(u *url.URL, src source) (source, error) {
	if u.Host != "" && !strings.EqualFold(u.Host, "localhost") {
		return src, errors.New("the file URL names another host")
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

// displayName returns a name that every terminal, page and database accepts. It cuts
// names of URLs; no file system has longer ones.
func displayName(s string) string {
	const maxBytes = 255
	s = strings.ToValidUTF8(s[:min(len(s), maxBytes)], "\uFFFD")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// quoteShort quotes at most 1000 bytes of s.
func quoteShort(s string) string {
	const maxBytes = 1000
	if len(s) > maxBytes {
		return fmt.Sprintf("%q…", s[:maxBytes])
	}
	return fmt.Sprintf("%q", s)
}
