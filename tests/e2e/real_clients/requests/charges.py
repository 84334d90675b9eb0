"""Charges orders, all at once, and prints the charge of each: charges.py HOST PORT ORDERS"""

import sys
from concurrent.futures import ThreadPoolExecutor

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

host, port, orders = sys.argv[1], sys.argv[2], int(sys.argv[3])
retries = Retry(
    total=5,
    backoff_factor=0.1,
    allowed_methods=["POST"],
    status_forcelist=[502, 503, 504],
)


def charge(order):
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retries))
        answer = session.post(
            f"http://{host}:{port}/v1/charges",
            headers={"Idempotency-Key": f"key-{order}"},
            data={"amount": 2000, "description": f"order-{order}"},
            timeout=10,
        )
        answer.raise_for_status()
        return answer.json()["id"]


with ThreadPoolExecutor(orders) as pool:
    print(*pool.map(charge, range(orders)), sep="\n")
