package fetch

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	maxRedirects  = 3
	maxRetryAfter = 24 * time.Hour
)

// get asks for u and follows its redirects. Every hop is a request of its own
// with the same few headers: no credentials, no cookies and no Referer go from
// one host to another. An http.Client would put URLs with all their secrets
// into its errors.
func get(ctx context.Context, via http.RoundTripper, u *url.URL, header http.Header) (*http.Response, error) {
	for hop := 0; ; hop++ {
		req := (&http.Request{Method: http.MethodGet, URL: u, Header: header.Clone(), Host: u.Host}).WithContext(ctx)
		if u.User != nil {
			password, _ := u.User.Password()
			req.SetBasicAuth(u.User.Username(), password)
		}
		resp, err := via.RoundTrip(req)
		if err != nil {
			return nil, connectError(err)
		}
		if !isRedirect(resp.StatusCode) {
			return resp, nil
		}
		location := resp.Header.Get("Location")
		resp.Body.Close()
		if hop == maxRedirects {
			return nil, refused("the server redirects more than %d times", maxRedirects)
		}
		if u, err = redirected(u, location); err != nil {
			return nil, err
		}
	}
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// redirected is where a redirect leads. A relative one keeps the URL's user
// and password, for it stays on the host; any other loses them.
func redirected(from *url.URL, location string) (*url.URL, error) {
	to, err := from.Parse(location)
	switch {
	case location == "" || err != nil || to.Hostname() == "":
		return nil, refused("the server redirects to nowhere")
	case to.Scheme != "http" && to.Scheme != "https":
		return nil, refused("the server redirects to a %.20q address", to.Scheme)
	case from.Scheme == "https" && to.Scheme == "http":
		return nil, refused("the server redirects from https to http")
	}
	return to, nil
}

// checkStatus is nil for an answer with a file in it. What the server may
// answer differently tomorrow is not permanent.
func checkStatus(resp *http.Response) error {
	code := resp.StatusCode
	if code == http.StatusOK || code == http.StatusPartialContent {
		return nil
	}
	err := fmt.Errorf("the server answered %s", strings.TrimSpace(strconv.Itoa(code)+" "+http.StatusText(code)))
	switch code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return &Error{Permanent: true, Err: err}
	default:
		if code < 500 {
			return &Error{Permanent: true, Err: err}
		}
	}
	return &Error{Err: err, RetryAfter: retryAfter(resp.Header, time.Now())}
}

// retryAfter is the pause the server asks for, up to a day.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// checkContent refuses answers that are certainly not the file's own bytes.
func checkContent(h http.Header) error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return refused("the server sends the file %.20q-encoded though it was asked not to", enc)
	}
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err == nil && (media == "text/html" || media == "application/xhtml+xml") {
		return refused("this is the address of a web page, not of a media file")
	}
	if err == nil && strings.HasPrefix(media, "multipart/") {
		return errors.New("the server sent several parts where one was asked for")
	}
	return nil
}

var contentRangePattern = regexp.MustCompile(`^bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)$`)

// contentRange reads where a partial answer begins and how long the whole file
// is, negative if the server does not say.
func contentRange(s string) (first, total int64, ok bool) {
	m := contentRangePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, 0, false
	}
	first, _ = strconv.ParseInt(m[1], 10, 64)
	last, _ := strconv.ParseInt(m[2], 10, 64)
	total = -1
	if m[3] != "*" {
		total, _ = strconv.ParseInt(m[3], 10, 64)
	}
	return first, total, last >= first && (total < 0 || last < total)
}
