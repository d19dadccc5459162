package media

// iso639 maps the ISO 639-2 codes of common languages, both kinds, to ISO 639-1. A
// missing one stays as it is, which is also valid. golang.org/x/text/language
// does not know the bibliographic codes that containers use, such as "fre".
var iso639 = map[string]string{
	"afr": "af", "alb": "sq", "sqi": "sq", "amh": "am", "ara": "ar", "arm": "hy", "hye": "hy", "aze": "az", "baq": "eu",
	"eus": "eu", "bel": "be", "ben": "bn", "bos": "bs", "bul": "bg", "bur": "my", "mya": "my", "cat": "ca", "chi": "zh",
	"zho": "zh", "cze": "cs", "ces": "cs", "dan": "da", "dut": "nl", "nld": "nl", "eng": "en", "epo": "eo", "est": "et",
	"fao": "fo", "fin": "fi", "fre": "fr", "fra": "fr", "fry": "fy", "geo": "ka", "kat": "ka", "ger": "de", "deu": "de",
	"gla": "gd", "gle": "ga", "glg": "gl", "gre": "el", "ell": "el", "guj": "gu", "hau": "ha", "heb": "he", "hin": "hi",
	"hrv": "hr", "hun": "hu", "ibo": "ig", "ice": "is", "isl": "is", "ind": "id", "ita": "it", "jav": "jv", "jpn": "ja",
	"kan": "kn", "kaz": "kk", "khm": "km", "kin": "rw", "kir": "ky", "kor": "ko", "kur": "ku", "lao": "lo", "lat": "la",
	"lav": "lv", "lit": "lt", "ltz": "lb", "mac": "mk", "mkd": "mk", "mal": "ml", "mao": "mi", "mri": "mi", "mar": "mr",
	"may": "ms", "msa": "ms", "mlt": "mt", "mon": "mn", "nep": "ne", "nno": "nn", "nob": "nb", "nor": "no", "ori": "or",
	"pan": "pa", "per": "fa", "fas": "fa", "pol": "pl", "por": "pt", "pus": "ps", "que": "qu", "rum": "ro", "ron": "ro",
	"rus": "ru", "san": "sa", "sin": "si", "slo": "sk", "slk": "sk", "slv": "sl", "sna": "sn", "snd": "sd", "som": "so",
	"sot": "st", "spa": "es", "srp": "sr", "sun": "su", "swa": "sw", "swe": "sv", "tam": "ta", "tat": "tt", "tel": "te",
	"tgk": "tg", "tgl": "tl", "tha": "th", "tib": "bo", "bod": "bo", "tir": "ti", "tuk": "tk", "tur": "tr", "uig": "ug",
	"ukr": "uk", "urd": "ur", "uzb": "uz", "vie": "vi", "wel": "cy", "cym": "cy", "wol": "wo", "xho": "xh", "yid": "yi",
	"yor": "yo", "zul": "zu",
}
