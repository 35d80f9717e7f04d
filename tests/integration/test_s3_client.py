"""What the sink's HTTP client must not pick up: the settings of other programs, and what a server would like it to do."""

from s3_faults import Status
from s3_server import S3Server
from scripted import Scripted

DEAD = "127.0.0.1:1"


def test_settings_of_other_programs_are_not_used(env):
    """Proxies, .netrc and .curlrc. The server finds fault with every header that was not signed."""
    home = env.dir / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine 127.0.0.1 login other password other\ndefault login other password other\n")
    (home / ".netrc").chmod(0o600)
    (home / ".curlrc").write_text('header = "X-Other: 1"\n')
    proxies = {name: f"http://{DEAD}" for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY")}
    with Scripted(env, ["orders"], HOME=home, **proxies) as s:
        s.start()
        s.push()
        s.finish()


def test_a_redirection_is_not_followed(env):
    """Nor is a cookie kept, nor another way to sign in taken up."""
    with S3Server() as other, Scripted(env, ["orders"]) as s:
        wishes = {"Location": f"{other.endpoint}/lake/x", "Set-Cookie": "a=b; Path=/", "WWW-Authenticate": "Basic",
                  "Strict-Transport-Security": "max-age=9999", "Alt-Svc": 'h2=":1"'}
        faults = [s.server.fault(Status(code, "TemporaryRedirect", headers=wishes), op="head") for code in (307, 301)]
        s.start()
        s.wait_bucket("status 307", False)
        s.push()
        s.finish()
        assert [fault.hits for fault in faults] == [1, 1] and other.requests == []
