package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
)

// scheme starts the addresses of buckets.
const scheme = "s3://"

// defaultEndpoint is that of AWS, which finds the bucket's region.
const defaultEndpoint = "https://s3.amazonaws.com"

// Address says where a bucket is and how to reach it. See [ParseAddress].
type Address struct {
	Bucket          string
	Prefix          string // of all names, without slashes at its ends; may be empty
	Endpoint        string // URL of the service
	Region          string // "" asks AWS for the bucket's region; other services take us-east-1
	VirtualHost     bool   // the bucket is a part of the host name instead of the path
	CAFile          string // PEM file of certificates to trust; "" for those of the system
	CredentialsFile string // in the format of AWS; "" for that in the home directory
	Profile         string // in CredentialsFile; "" for default

	accessKey, secretKey, sessionToken string // from the environment; empty to read CredentialsFile
}

// IsAddress reports whether text is the address of a bucket and not the path of a directory.
func IsAddress(text string) bool { return strings.HasPrefix(text, scheme) }

// parameters are the options in an address, after a question mark.
var parameters = []string{"ca", "credentials", "endpoint", "profile", "region", "style"}

// ParseAddress reads s3://bucket/prefix?region=…&endpoint=…&style=…&ca=…&credentials=…&profile=….
// Everything after the bucket is optional. The style is path or virtual-host; the default is
// virtual-host for AWS and path for other services.
//
// The variables AWS_REGION, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL,
// AWS_CA_BUNDLE, AWS_SHARED_CREDENTIALS_FILE and AWS_PROFILE set the options that the address
// does not have. If it has neither credentials nor a profile, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN come before the file. The function get returns
// a variable's value, such as [os.Getenv].
func ParseAddress(text string, get func(string) string) (Address, error) {
	u, err := url.Parse(text)
	if err != nil || !IsAddress(text) {
		return Address{}, errors.New("the address of a bucket is s3://BUCKET/PREFIX")
	}
	if u.User != nil {
		return Address{}, errors.New("an address has no credentials: " +
			"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file with ?credentials=FILE")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Address{}, errors.New("the options of the address are not NAME=VALUE, separated by &")
	}
	for name := range query {
		if !slices.Contains(parameters, name) {
			allowed := strings.Join(parameters, ", ")
			return Address{}, fmt.Errorf("the address has the unknown option %q; allowed: %s", name, allowed)
		}
	}
	a := Address{
		Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"),
		Region: cmp.Or(query.Get("region"), get("AWS_REGION"), get("AWS_DEFAULT_REGION")),
		CAFile: cmp.Or(query.Get("ca"), get("AWS_CA_BUNDLE")),
	}
	a.setCredentials(query, get)
	return a, errors.Join(a.check(u), a.setEndpoint(query, get))
}

func (a *Address) check(u *url.URL) error {
	if a.Bucket == "" || u.Port() != "" || u.Fragment != "" {
		return errors.New("the address of a bucket is s3://BUCKET/PREFIX; the service's own address is the option endpoint")
	}
	if a.Prefix != "" && !fs.ValidPath(a.Prefix) {
		return fmt.Errorf("the prefix %q must not have empty, . or .. elements", a.Prefix)
	}
	return nil
}

func (a *Address) setEndpoint(query url.Values, get func(string) string) error {
	from := "the option endpoint"
	a.Endpoint = query.Get("endpoint")
	for _, variable := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if a.Endpoint == "" {
			from, a.Endpoint = variable, get(variable)
		}
	}
	a.Endpoint = cmp.Or(a.Endpoint, defaultEndpoint)
	if err := checkEndpoint(from, a.Endpoint); err != nil {
		return err
	}
	switch style := query.Get("style"); style {
	case "":
		a.VirtualHost = a.isAWS()
	case "path", "virtual-host":
		a.VirtualHost = style == "virtual-host"
	default:
		return fmt.Errorf("the option style is %q; allowed: path, virtual-host", style)
	}
	if a.Region == "" && !a.isAWS() {
		a.Region = "us-east-1"
	}
	return nil
}

// checkEndpoint checks the URL of a service. The error does not quote one that may have a secret in it.
func checkEndpoint(from, endpoint string) error {
	if !strings.ContainsAny(endpoint, "/@ ") {
		return fmt.Errorf("%s has no scheme: write https://%s, or http://%s if the service does not speak TLS", from, endpoint, endpoint)
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("%s is not the URL of a service: it must be https://HOST or http://HOST, without a path", from)
	}
	return nil
}

func (a *Address) setCredentials(query url.Values, get func(string) string) {
	a.CredentialsFile = cmp.Or(query.Get("credentials"), get("AWS_SHARED_CREDENTIALS_FILE"))
	a.Profile = cmp.Or(query.Get("profile"), get("AWS_PROFILE"))
	if !query.Has("credentials") && !query.Has("profile") {
		a.accessKey, a.secretKey = get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")
		a.sessionToken = get("AWS_SESSION_TOKEN")
	}
}

func (a *Address) isAWS() bool {
	endpoint, err := url.Parse(a.Endpoint)
	host := ""
	if err == nil {
		host = endpoint.Hostname()
	}
	return strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn")
}

// String returns the address without its options.
func (a Address) String() string {
	if a.Prefix == "" {
		return scheme + a.Bucket
	}
	return scheme + a.Bucket + "/" + a.Prefix
}
