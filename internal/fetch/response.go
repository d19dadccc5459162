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

// getFollowingRedirects sends a new request with the same few headers for each redirect:
// no credentials, cookies or Referer go from one host to another. It does not use an
// http.Client, whose errors contain URLs with their secrets.
func getFollowingRedirects(
	ctx context.Context, transport http.RoundTripper, u *url.URL, header http.Header,
) (*http.Response, error) {
	for redirects := 0; ; redirects++ {
		req := (&http.Request{Method: http.MethodGet, URL: u, Header: header.Clone(), Host: u.Host}).WithContext(ctx)
		if u.User != nil {
			password, _ := u.User.Password()
			req.SetBasicAuth(u.User.Username(), password)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return nil, connectError(err)
		}
		if !isRedirect(resp.StatusCode) {
			return resp, nil
		}
		location := resp.Header.Get("Location")
		resp.Body.Close()
		if redirects == maxRedirects {
			return nil, permanent("the server redirects more than %d times", maxRedirects)
		}
		if u, err = resolveRedirect(u, location); err != nil {
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

// resolveRedirect returns the target of a redirect. A relative location stays on the
// host, so it keeps the user and password. An absolute one does not.
func resolveRedirect(from *url.URL, location string) (*url.URL, error) {
	to, err := from.Parse(location)
	switch {
	case location == "" || err != nil || to.Hostname() == "":
		return nil, permanent("the server redirects to nowhere")
	case to.Scheme != "http" && to.Scheme != "https":
		return nil, permanent("the server redirects to a %.20q address", to.Scheme)
	case from.Scheme == "https" && to.Scheme == "http":
		return nil, permanent("the server redirects from https to http")
	}
	return to, nil
}

// checkStatus returns nil if the response contains a file. The error is not permanent if
// the server may answer differently later.
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

// retryAfter parses the header Retry-After. It returns at most a day.
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

// checkContent returns an error if the body is certainly not the bytes of a media file.
func checkContent(h http.Header) error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return permanent("the server sends the file with encoding %.20q, although the request forbids it", enc)
	}
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err == nil && (media == "text/html" || media == "application/xhtml+xml") {
		return permanent("this is the address of a web page, not of a media file")
	}
	if err == nil && strings.HasPrefix(media, "multipart/") {
		return errors.New("the server sent several ranges; the request was for one")
	}
	return nil
}

var contentRangePattern = regexp.MustCompile(`^bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)$`)

// parseContentRange parses the header Content-Range. The total is negative if the server
// does not send it.
func parseContentRange(s string) (first, total int64, ok bool) {
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
