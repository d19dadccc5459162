package captions

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
)

// legacy are the encodings that subtitles of a language have if they are not in Unicode: those of Windows.
var legacy = map[string]encoding.Encoding{
	"cs": charmap.Windows1250, "pl": charmap.Windows1250, "sk": charmap.Windows1250, "hu": charmap.Windows1250,
	"sl": charmap.Windows1250, "hr": charmap.Windows1250, "ro": charmap.Windows1250, "bs": charmap.Windows1250,
	"ru": charmap.Windows1251, "uk": charmap.Windows1251, "bg": charmap.Windows1251, "be": charmap.Windows1251,
	"sr": charmap.Windows1251, "mk": charmap.Windows1251,
	"el": charmap.Windows1253, "tr": charmap.Windows1254, "he": charmap.Windows1255,
	"ar": charmap.Windows1256, "fa": charmap.Windows1256, "et": charmap.Windows1257, "lv": charmap.Windows1257,
	"lt": charmap.Windows1257, "vi": charmap.Windows1258, "th": charmap.Windows874,
	"ja": japanese.ShiftJIS, "ko": korean.EUCKR, "zh": simplifiedchinese.GB18030,
	"zh-tw": traditionalchinese.Big5, "zh-hk": traditionalchinese.Big5, "zh-hant": traditionalchinese.Big5,
}

// decode returns the text of a file, without a byte order mark. A file that is not in Unicode is taken to be in the
// encoding of its language, and without one in that of western Europe.
func decode(data []byte, language string) (string, error) {
	if len(data) > MaxBytes {
		return "", &Error{Reason: fmt.Sprintf("the file has %d bytes; %d are allowed", len(data), MaxBytes)}
	}
	from := encodingOf(data, language)
	if from != nil {
		decoded, err := from.NewDecoder().Bytes(data)
		if err != nil {
			return "", &Error{Reason: "the encoding of the file is not recognised; send it in UTF-8"}
		}
		data = decoded
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	if at := strings.IndexAny(text, "\x00\ufffd"); at >= 0 {
		return "", &Error{1 + strings.Count(text[:at], "\n"), "the encoding of the file is not recognised; send it in UTF-8"}
	}
	return text, nil
}

// encodingOf returns nil for UTF-8.
func encodingOf(data []byte, language string) encoding.Encoding {
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		return unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	case len(data) > 1 && data[1] == 0 && data[0] != 0:
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	case len(data) > 1 && data[0] == 0 && data[1] != 0:
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	case utf8.Valid(data):
		return nil
	}
	language = strings.ToLower(language)
	if found, ok := legacy[language]; ok {
		return found
	}
	primary, _, _ := strings.Cut(language, "-")
	if found, ok := legacy[primary]; ok {
		return found
	}
	return charmap.Windows1252
}
