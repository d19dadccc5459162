package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// readCredentials reads the credentials once, so that a missing file is an error at the
// start. They are read again when the service refuses them.
func (a Address) readCredentials() (*credentials.Credentials, error) {
	if a.accessKey != "" && a.secretKey != "" {
		return credentials.NewStaticV4(a.accessKey, a.secretKey, a.sessionToken), nil
	}
	if a.accessKey != "" || a.secretKey != "" {
		set, missing := "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
		if a.accessKey == "" {
			set, missing = missing, set
		}
		return nil, &ServiceError{
			Kind: Credentials, Text: set + " is set, but " + missing + " is not",
			Hint: "set both, or neither if a credentials file has them",
		}
	}
	creds := credentials.New(&fileCredentials{
		FileAWSCredentials: &credentials.FileAWSCredentials{Filename: a.CredentialsFile, Profile: a.Profile}, address: a,
	})
	if _, err := creds.GetWithContext(nil); err != nil {
		return nil, err
	}
	return creds, nil
}

// fileCredentials says what is wrong with a credentials file, also when it is read again.
type fileCredentials struct {
	*credentials.FileAWSCredentials
	address Address
}

// RetrieveWithCredContext reads the file.
func (f *fileCredentials) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	value, err := f.FileAWSCredentials.RetrieveWithCredContext(cc)
	if err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		return credentials.Value{}, f.address.explainFile(err)
	}
	return value, nil
}

// explainFile explains why a credentials file cannot be used; err is nil if it has no keys. The error of
// a file that cannot be parsed is not printed: it quotes a line, which may be a secret.
func (a Address) explainFile(err error) *ServiceError {
	file := cmp.Or(a.CredentialsFile, "~/.aws/credentials or ~/.aws/config")
	profile := fmt.Sprintf("the profile %q", cmp.Or(a.Profile, "default"))
	e := &ServiceError{Kind: Credentials, Err: err}
	opened, isFile := errors.AsType[*fs.PathError](err)
	switch {
	case err == nil:
		e.Text = profile + " in " + file + " has no keys"
		e.Hint = "write aws_access_key_id and aws_secret_access_key into it"
	case isFile && opened.Path == a.CredentialsFile:
		e.Text = fmt.Sprintf("the credentials file %s cannot be read: %v", file, opened.Err)
		e.Hint = "correct AWS_SHARED_CREDENTIALS_FILE, or the option credentials of the address"
	case errors.Is(err, fs.ErrNotExist) && a.CredentialsFile == "" && a.Profile == "":
		e.Text = "there are no credentials for " + a.String()
		e.Hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file with AWS_SHARED_CREDENTIALS_FILE"
	case errors.Is(err, fs.ErrNotExist), strings.HasSuffix(err.Error(), "does not exist"):
		e.Text = profile + " is not in " + file
		e.Hint = "correct AWS_PROFILE and AWS_SHARED_CREDENTIALS_FILE, or the options profile and credentials of the address"
	case strings.Contains(err.Error(), "partial static credentials"):
		e.Text = profile + " in " + file + " has only one of aws_access_key_id and aws_secret_access_key"
		e.Hint = "write both into it"
	default:
		e.Text = profile + " in " + file + " cannot be used"
		e.Hint = "correct the syntax of the file, its credential_process, or log in by SSO"
	}
	return e
}
